"""A Python process profiles itself: `unspool.profile()`, `start()`, `stop()`, each test in a process."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

TIMEOUT = 120  # seconds
WORK = """
import os, signal, sys, threading, time
import unspool

def burn(milliseconds):
    end = time.thread_time_ns() + milliseconds * 1_000_000
    while time.thread_time_ns() < end:
        sum(range(1000))

def weights(profile):
    names = {}
    for thread, weight in zip(profile.sample_thread.tolist(), profile.sample_weight.tolist()):
        name = profile.threads[thread].name
        names[name] = names.get(name, 0) + weight
    return names
"""


def run(tmp_path: Path, code: str, status: int = 0) -> str:
    """Output of the code, with WORK before it."""
    result = subprocess.run(
        [sys.executable, "-c", WORK + code],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        cwd=tmp_path,
        check=False,
    )
    assert result.returncode == status, result.stderr
    return result.stdout


def test_what_a_block_does_is_profiled(tmp_path: Path) -> None:
    output = run(
        tmp_path,
        """
burn(300)
with unspool.profile() as p:
    burn(300)
burn(300)
profile = p.open()
print(int(profile.sample_weight.sum()), sum(t.user_time + t.system_time for t in profile.threads))
""",
    )
    weight, kernels = map(int, output.split())
    assert weight == pytest.approx(300_000_000, rel=0.2)
    assert kernels == pytest.approx(300_000_000, rel=0.2)


def test_all_threads_are_profiled(tmp_path: Path) -> None:
    output = run(
        tmp_path,
        """
before = threading.Thread(target=lambda: (ready.wait(), burn(200)))
ready = threading.Event()
before.start()
with unspool.profile() as p:
    ready.set()
    after = threading.Thread(target=burn, args=(200,))
    after.start()
    before.join(); after.join()
profile = p.open()
tids = profile.sample_thread.tolist()
print(sum(tids.count(n) >= 20 for n in set(tids)))
""",
    )
    assert int(output) == 2


def test_results_while_it_runs(tmp_path: Path) -> None:
    output = run(
        tmp_path,
        """
with unspool.profile() as p:
    burn(300)
    p.save("middle.html")
    middle = len(p.open().sample_weight)
    print(p.report())
    burn(300)
p.save("end.pb.gz")
p.save("end.unspool")
print(middle, len(p.open().sample_weight))
""",
    )
    middle, end = map(int, output.splitlines()[-1].split())
    assert 30 <= middle < end
    assert "hottest functions" in output
    assert (tmp_path / "middle.html").read_text().startswith("<!")
    assert (tmp_path / "end.pb.gz").exists() and (tmp_path / "end.unspool").exists()


def test_it_says_what_it_is(tmp_path: Path) -> None:
    output = run(
        tmp_path,
        """
p = unspool.profile()
print(p)
with p:
    print(p)
    burn(300)
print(p)
q = unspool.profile(0)
try:
    q.start()
except unspool.ProfilingError:
    print(q)
""",
    )
    states = [
        re.sub(r"^<unspool profile of process \d+: (.*)>$", r"\1", line) for line in output.splitlines()
    ]
    assert [*states[:2], states[3]] == ["not started", "running at 199 Hz", "has failed"]
    assert re.fullmatch(r"\d+ samples, 0\.[23]\d s of CPU time, \d+\.\d % complete", states[2])


def test_saving_keeps_recordings_and_replaces_other_files(tmp_path: Path) -> None:
    output = run(
        tmp_path,
        """
with unspool.profile() as p:
    burn(100)
open("there.html", "w").close()
p.save("there.html")
p.save("there.unspool")
for options in ({}, {"post_process": lambda profile: profile}):
    try:
        p.save("there.unspool", **options)
    except (unspool.ProfilingError, unspool.export.ExportError) as error:
        print(error)
""",
    )
    kept, processed = output.splitlines()
    assert kept == "there.unspool: it is there already: choose another name, or move it away"
    assert "leave out post_process" in processed
    assert (tmp_path / "there.html").read_text().startswith("<!")


def test_start_and_stop_again_and_again(tmp_path: Path) -> None:
    output = run(
        tmp_path,
        """
for rate in (199, 997, 199):
    unspool.start(rate)
    burn(200)
    print(int(unspool.stop().open().sample_weight.sum()))
burn(100)
""",
    )
    assert [int(line) for line in output.split()] == [pytest.approx(200_000_000, rel=0.3)] * 3


def test_a_second_profile_at_the_same_time_is_refused(tmp_path: Path) -> None:
    output = run(
        tmp_path,
        """
with unspool.profile():
    try:
        unspool.start()
    except unspool.ProfilingError as error:
        print(error)
""",
    )
    assert "profiled already" in output


def test_stop_without_start(tmp_path: Path) -> None:
    code = "try:\n    unspool.stop()\nexcept unspool.ProfilingError as error:\n    print(error)\n"
    assert "unspool.start()" in run(tmp_path, code)


def test_a_forked_child_is_its_own(tmp_path: Path) -> None:
    """It can't use its parent's profile, may make one itself, and leaves the parent's recording alone."""
    output = run(
        tmp_path,
        """
with unspool.profile() as p:
    burn(200)
    child = os.fork()
    if child == 0:
        try:
            p.stop()
        except unspool.ProfilingError as error:
            print(error, flush=True)
        sys.exit(0)
    print(os.waitpid(child, 0)[1])
    burn(200)
print(int(p.open().sample_weight.sum()) > 300_000_000)
""",
    )
    lines = output.splitlines()
    assert "fork" in lines[0]
    assert lines[1:] == ["0", "True"]


def test_a_forked_child_profiles_itself(tmp_path: Path) -> None:
    output = run(
        tmp_path,
        """
if os.fork() == 0:
    with unspool.profile() as p:
        burn(200)
    print(int(p.open().sample_weight.sum()) > 100_000_000, flush=True)
    os._exit(0)
os.wait()
""",
    )
    assert output == "True\n"


def test_post_processing(tmp_path: Path) -> None:
    output = run(
        tmp_path,
        """
from dataclasses import replace

def shout(profile):
    return replace(profile, functions=[name.upper() for name in profile.functions])

with unspool.profile() as p:
    burn(200)
p.save("end.collapsed", post_process=shout)
print(open("end.collapsed").read())
""",
    )
    assert "PYEVAL" in output.upper() and not re.search(r"[a-z]_", output.replace("python", ""))


def test_the_programs_own_signal_handler_comes_back(tmp_path: Path) -> None:
    output = run(
        tmp_path,
        """
signal.signal(signal.SIGPROF, lambda *_: print("mine", flush=True))
with unspool.profile(997):
    burn(100)
os.kill(os.getpid(), signal.SIGPROF)
""",
    )
    assert output == "mine\n"


def test_nothing_is_left_when_the_process_is_killed(tmp_path: Path) -> None:
    """The helper ends, and its folder goes."""
    output = run(
        tmp_path,
        """
p = unspool.start()
print(p._helper.pid, p._folder, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
""",
        status=-9,
    )
    helper, folder = output.split()
    for _ in range(600):
        if not Path(f"/proc/{helper}").exists() and not Path(folder).exists():
            return
        subprocess.run(["sleep", "0.1"], check=True)
    raise AssertionError("the helper or its folder is still there")


def test_a_helper_that_was_killed_is_an_error_and_harms_nothing(tmp_path: Path) -> None:
    output = run(
        tmp_path,
        """
p = unspool.start()
os.kill(p._helper.pid, signal.SIGKILL)
burn(100)
try:
    p.stop()
except unspool.ProfilingError as error:
    print(error)
burn(100)
""",
    )
    assert "helper process has ended" in output


@pytest.mark.parametrize(("arguments", "words"), [("0", "0 Hz"), ("199, block='('", "regular expression")])
def test_what_can_not_be(tmp_path: Path, arguments: str, words: str) -> None:
    code = (
        f"try:\n    unspool.start({arguments})\nexcept unspool.ProfilingError as error:\n    print(error)\n"
    )
    assert words in run(tmp_path, code)


def test_the_package_of_the_same_name_stays_importable(tmp_path: Path) -> None:
    output = run(
        tmp_path,
        """
from unspool.profile import Profile
import unspool.profile.model
print(callable(unspool.profile), Profile.__name__)
""",
    )
    assert output == "True Profile\n"
