"""`unspool record` on small programs that know themselves what they do. Bounds are wide enough for a machine
that has other things to do; they are in CPU time, which does not depend on that."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.recording import TIMEOUT, UNSPOOL, Recorded, build, record

MILLISECONDS = 1_000_000


@pytest.fixture(scope="module")
def threads(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("threads")
    return record(folder, [build(folder, "threads.c")])


def test_the_programs_own_output_and_status_are_passed_on(threads: Recorded) -> None:
    assert threads.status == 0
    assert re.fullmatch(r"\d+\n", threads.output)
    assert f"written to {threads.path}" in threads.errors
    assert threads.errors.endswith(f"unspool: next: unspool report {threads.path}\n")


def test_cpu_time_is_the_kernels(threads: Recorded) -> None:
    ((total,),) = threads.query("SELECT sum(cpu_time) FROM thread_time")
    assert total == pytest.approx(int(threads.output), rel=0.02)


def test_a_thread_that_runs_while_all_others_wait_is_sampled_early(threads: Recorded) -> None:
    """Within 50 ms of its start: what of its 200 ms is not sampled is less than that, at least for most."""
    missed = threads.values("SELECT name, not_sampled FROM thread_time WHERE name LIKE 'alone%'")
    assert set(missed) == {f"alone-{n}" for n in range(6)}
    assert sum(time < 50 * MILLISECONDS for time in missed.values()) >= 5


def test_threads_that_live_shortly_are_sampled(tmp_path: Path) -> None:
    """6 ms each: unspool is woken when a thread is made, it does not only look every 20 ms."""
    program = build(tmp_path, "short_threads.c")
    shares = []
    for attempt in range(3):  # the machine may be busy
        result = record(tmp_path, [program], name=f"{attempt}.unspool")
        ((cpu_time, sampled),) = result.query("SELECT sum(cpu_time), sum(sampled) FROM thread_time")
        assert cpu_time > 600 * MILLISECONDS
        shares.append(sampled / cpu_time)
    assert max(shares) > 0.6, shares


def test_all_threads_are_sampled_alike(threads: Recorded) -> None:
    sampled = threads.values("SELECT name, sampled FROM thread_time WHERE name LIKE 'together%'")
    assert len(sampled) == 6
    assert min(sampled.values()) > 100 * MILLISECONDS


def test_stacks_are_complete_and_true(threads: Recorded) -> None:
    """Nothing but burn is called by body."""
    ends = threads.values("SELECT stack_end, samples FROM sample_ends")
    assert ends["root"] >= 0.99 * sum(ends.values())
    pairs = threads.query(
        "SELECT DISTINCT callee.function, caller.function FROM stacks"
        " JOIN stacks AS below ON below.id = stacks.parent"
        " JOIN frame_names AS callee ON callee.frame = stacks.frame"
        " JOIN frame_names AS caller ON caller.frame = below.frame AND caller.depth = 0"
        " WHERE callee.depth = (SELECT max(depth) FROM frame_names WHERE frame = stacks.frame)"
    )
    assert ("burn", "body") in pairs
    assert {callee for callee, caller in pairs if caller == "body"} <= {"burn", "prctl", "__prctl"}


def test_libraries_that_are_loaded_later(tmp_path: Path) -> None:
    plugin = build(tmp_path, "plugin.c", "-shared", "-fPIC")
    result = record(tmp_path, [build(tmp_path, "loads.c", "-ldl"), plugin])
    total = result.values("SELECT function, weight FROM function_total")
    assert total["burn_in_plugin"] > 200 * MILLISECONDS
    assert total["burn_below_plugin"] == pytest.approx(300 * MILLISECONDS, rel=0.3)
    below = result.query(
        "SELECT count(*) FROM samples JOIN stacks ON stacks.id = samples.stack"
        " JOIN frame_names ON frame_names.frame = stacks.frame"
        " WHERE function = 'burn_below_plugin' AND samples.flags = 0 AND samples.stack_end = 0"
    )
    assert below[0][0] > 10  # once its table is there


def test_a_sample_without_the_librarys_table_says_so(tmp_path: Path) -> None:
    plugin = build(tmp_path, "plugin.c", "-shared", "-fPIC")
    result = record(tmp_path, [build(tmp_path, "loads.c", "-ldl"), plugin])
    cut = result.query("SELECT samples FROM sample_ends WHERE stack_end <> 'root' AND flags = 0")
    assert sum(samples for (samples,) in cut) <= 1


@pytest.mark.parametrize("way", ["fork", "vfork", "spawn"])
def test_children_have_their_own_ids(tmp_path: Path, way: str) -> None:
    result = record(tmp_path, [build(tmp_path, "family.c"), way])
    assert result.status == 0
    child = int(result.output)
    processes = result.query("SELECT pid, parent FROM processes ORDER BY id")
    assert [pid for pid, _ in processes][1] == child
    assert processes[1][1] == 0  # the number of the first
    sampled = result.values("SELECT pid, sampled FROM thread_time WHERE samples > 0")
    assert sampled[child] == pytest.approx(250 * MILLISECONDS, rel=0.2)
    of_child = result.query(
        "SELECT DISTINCT function FROM samples JOIN threads ON threads.id = samples.thread"
        " JOIN processes ON processes.id = threads.process JOIN stacks ON stacks.id = samples.stack"
        f" JOIN frame_names ON frame_names.frame = stacks.frame WHERE pid = {child}"
    )
    assert ("burn_as_child",) in of_child and ("burn_as_parent",) not in of_child


def test_a_program_after_exec_is_another_process(tmp_path: Path) -> None:
    result = record(tmp_path, [build(tmp_path, "family.c"), "exec"])
    processes = result.query("SELECT pid, command FROM processes ORDER BY id")
    assert len(processes) == 2 and processes[0][0] == processes[1][0]
    assert [command.split()[-1] for _, command in processes] == ["exec", "child"]
    sampled = result.query("SELECT command, sampled, cpu_time FROM thread_time WHERE samples > 0")
    times = {command.split()[-1]: (weight, cpu) for command, weight, cpu in sampled}
    assert times["exec"][1] == pytest.approx(100 * MILLISECONDS, rel=0.3)
    assert times["child"][1] == pytest.approx(250 * MILLISECONDS, rel=0.2)
    assert times["child"][0] == pytest.approx(250 * MILLISECONDS, rel=0.2)


def test_the_total_is_the_kernels_however_short_processes_live(tmp_path: Path) -> None:
    """Some end before they are looked at, and all after they were looked at for the last time."""
    script = "for ((i = 0; i < 30000; i++)); do ((i % 500)) || sort -R /etc/services > /dev/null; done; times"
    result = record(tmp_path, ["bash", "-c", script])
    times = re.findall(r"(\d+)m([\d.]+)s", result.output)
    assert len(times) == 4  # user and system time of the shell, and of its children
    ((total,),) = result.query("SELECT sum(cpu_time) FROM thread_time")
    assert total / 1e9 == pytest.approx(sum(60 * float(m) + float(s) for m, s in times), rel=0.04)
    # What is not of a process that was recorded is the command's own, not of one that is made up for it.
    of_rest = "SELECT processes.id FROM threads JOIN processes ON processes.id = process WHERE tid = -1"
    assert result.query(of_rest) in ([], [(0,)])
    assert not result.query("SELECT 1 FROM processes WHERE start_time IS NULL")


def test_children_can_be_left_alone(tmp_path: Path) -> None:
    result = record(tmp_path, [build(tmp_path, "family.c"), "spawn"], "--no-follow")
    assert result.status == 0
    assert len(result.query("SELECT pid FROM processes")) == 1


def test_shares_of_time(tmp_path: Path) -> None:
    """One run, against what the program measured itself; `make record-proof` is strict."""
    result = record(tmp_path, [build(tmp_path, "shares.c"), "1000"])
    truth = {name: int(time) for name, time in (line.split() for line in result.output.splitlines())}
    found = result.values("SELECT function, weight FROM function_total")
    count = sum(samples for (samples,) in result.query("SELECT samples FROM sample_ends"))
    for name, true_time in truth.items():
        share = true_time / sum(truth.values())
        deviation = (share * (1 - share) / count) ** 0.5
        assert found[name] / sum(truth.values()) == pytest.approx(share, abs=5 * deviation), name


def test_more_samples_a_second_than_timers_give(tmp_path: Path) -> None:
    result = record(tmp_path, [build(tmp_path, "shares.c"), "500"], "-r", "2000")
    count = sum(samples for (samples,) in result.query("SELECT samples FROM sample_ends"))
    assert count > 500  # events see user code only: 780 would be all; timers give 125 at most
    ((kernels, sampled),) = result.query("SELECT sum(cpu_time), sum(sampled) FROM thread_time")
    assert sampled == pytest.approx(kernels, rel=0.1)


def test_threads_under_other_names(tmp_path: Path) -> None:
    renaming = r"(alone|together)-\d=\1"
    result = record(tmp_path, [build(tmp_path, "threads.c")], "--rename-threads", renaming)
    names = {name for (name,) in result.query("SELECT name FROM threads WHERE tid > 0")}
    assert names == {"threads", "alone", "together"}


def test_samples_of_blocked_files_are_dropped_and_counted(tmp_path: Path) -> None:
    result = record(tmp_path, [build(tmp_path, "shares.c"), "300"], "--block", r"/libc\.so")
    assert "blocklist" in result.errors
    assert not result.query("SELECT 1 FROM function_self WHERE binary LIKE 'libc.so%'")


@pytest.mark.parametrize(("command", "status"), [("exit 3", 3), ("kill -9 $$", 137), ("kill -15 $$", 143)])
def test_exit_status(tmp_path: Path, command: str, status: int) -> None:
    result = record(tmp_path, ["sh", "-c", command])
    assert result.status == status
    assert ("sh was killed by SIGKILL" in result.errors) == (status == 137)
    assert ("sh was killed by SIGTERM" in result.errors) == (status == 143)


@pytest.mark.parametrize("status", [0, 7])
@pytest.mark.parametrize("name", ["recording.unspool", "recording.html"])
def test_no_samples_is_an_answer_that_says_why(tmp_path: Path, status: int, name: str) -> None:
    result = record(tmp_path, ["sh", "-c", f"exit {status}"], name=name)
    assert result.status == status
    assert "unspool: no samples: the program used " in result.errors
    assert "give a higher rate with -r" in result.errors
    assert "0 samples at 199 Hz" in result.errors and f"written to {result.path}" in result.errors
    if name.endswith(".unspool"):
        said = told(tmp_path, "report", result.path)
        assert f"ended    exit status {status}\n" in said and "give a higher rate with -r" in said
        told(tmp_path, "query", result.path, "SELECT * FROM function_self")
        for format_ in ("html", "pprof", "collapsed"):
            told(tmp_path, "export", result.path, "-f", format_, "-o", tmp_path / format_)


def told(folder: Path, *arguments: str | Path) -> str:
    """What another verb prints; it must succeed."""
    command = [*UNSPOOL, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    assert result.returncode == 0, result
    return result.stdout


def test_the_report_says_how_the_program_ended(tmp_path: Path) -> None:
    result = record(tmp_path, ["sh", "-c", "kill -SEGV $$"])
    assert result.status == 139
    assert "  ended    killed by SIGSEGV\n" in told(tmp_path, "report", result.path)


def test_threads_are_counted_alike_by_record_and_in_the_recording(tmp_path: Path) -> None:
    """Those of processes that call exec, too."""
    script = 'for i in 1 2 3; do "$0"; done; exec "$0"'
    result = record(tmp_path, ["bash", "-c", script, build(tmp_path, "threads.c")])
    counts = result.query(
        "SELECT (SELECT count(*) FROM processes), (SELECT count(*) FROM threads WHERE tid > 0)"
    )
    assert f", {counts[0][0]} processes, {counts[0][1]} threads, " in result.errors


def test_what_costs_no_sample_is_noted_and_interrupts_nobody(tmp_path: Path) -> None:
    """sort has a handler for SIGPROF of its own."""
    result = record(
        tmp_path,
        ["bash", "-c", "sort -R /etc/services | tail -1; for ((i = 0; i < 300000; i++)); do :; done"],
    )
    assert "SIGPROF" not in result.errors
    assert result.query("SELECT text FROM problems WHERE text LIKE '%SIGPROF itself%'")


def test_a_problem_of_many_processes_is_told_once(tmp_path: Path) -> None:
    """With whose it is; of the program itself without."""
    script = "import ctypes; ctypes.CDLL(None).prctl(22, 1, 0, 0, 0)"  # PR_SET_SECCOMP, SECCOMP_MODE_STRICT
    strict = [sys.executable, "-c", script]  # the kernel ends it at once
    result = record(tmp_path, ["sh", "-c", '"$@"; "$@"; exit 0', "sh", *strict])
    (line,) = [line for line in result.errors.splitlines() if "seccomp" in line]
    assert re.match(r"unspool: process \d+: the program has set a seccomp filter", line)
    assert len(result.query("SELECT 1 FROM problems WHERE text LIKE '%seccomp%'")) == 2
    (line,) = [
        line for line in record(tmp_path, strict, name="own.unspool").errors.splitlines() if "seccomp" in line
    ]
    assert line.startswith("unspool: the program has set")


def test_a_static_program_is_not_started_to_be_watched_from_inside(tmp_path: Path) -> None:
    """One line says what would work; which is chosen if nothing else is asked for."""
    program = build(tmp_path, "shares.c", "-static")
    result = record(tmp_path, [program, "100"], "--via", "in-process")
    assert (result.status, result.output) == (1, "")
    assert (
        result.errors.startswith(f"Error: {program} is statically linked") and result.errors.count("\n") == 1
    )
    assert "--via perf can watch it" in result.errors
    assert list(tmp_path.glob("*.unspool*")) == []
    assert "burn_a" in record(tmp_path, [program, "100"]).output


@pytest.mark.parametrize("rate", ["0", "10001", "-5", "x"])
def test_a_rate_that_can_not_be_is_a_usage_error_that_says_which_can(tmp_path: Path, rate: str) -> None:
    result = record(tmp_path, ["sh", "-c", "echo ran"], "-r", rate)
    assert (result.status, result.output) == (2, "")
    assert "1<=x<=10000" in result.errors or rate == "x"
    assert "1<=x<=10000" in told(tmp_path, "record", "--help")


@pytest.mark.parametrize(
    ("command", "status", "words"),
    [("no-such-command", 127, "no such command"), ("./plain", 126, "chmod")],
)
def test_what_can_not_be_run(tmp_path: Path, command: str, status: int, words: str) -> None:
    (tmp_path / "plain").write_text("text")
    result = record(tmp_path, [command])
    assert result.status == status and words in result.errors
    assert not result.path.exists()


def test_a_script_without_a_first_line_is_run_by_the_shell(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("echo from the script $1\nexit 4\n")
    script.chmod(0o755)
    result = record(tmp_path, ["./script", "now"])
    assert (result.output, result.status) == ("from the script now\n", 4)


def test_an_interpreter_that_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    script = tmp_path / "script"
    script.write_text(f"#!{tmp_path}/fifo\n")
    script.chmod(0o755)
    result = record(tmp_path, ["./script"])
    assert result.status == 126
    assert "script can't be started: Permission denied" in result.errors


def test_the_environment_is_the_same(tmp_path: Path) -> None:
    bare = subprocess.run(["env"], capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert record(tmp_path, ["env"]).output == bare


def test_the_same_signals_are_ignored(tmp_path: Path) -> None:
    command = ["grep", "Sig[BI]", "/proc/self/status"]
    bare = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert bare.count("\n") == 2
    assert record(tmp_path, command).output == bare


def test_files_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "recording.unspool").write_text("mine")
    result = record(tmp_path, ["sh", "-c", "echo ran"])
    assert result.status != 0 and result.output == ""
    assert (tmp_path / "recording.unspool").read_text() == "mine"


@pytest.mark.parametrize("name", ["/proc/x.unspool", "/proc/x.html"])
def test_what_can_not_be_written_is_known_before_the_program_runs(tmp_path: Path, name: str) -> None:
    result = record(tmp_path, ["sh", "-c", "echo ran"], name=name)
    assert (result.status, result.output) == (1, "")
    assert "/proc: no files can be made here (No such file or directory)" in result.errors


def test_a_name_is_found_that_is_not_taken(tmp_path: Path) -> None:
    program = build(tmp_path, "shares.c")
    subprocess.run([*UNSPOOL, "record", program, "200"], cwd=tmp_path, check=True, capture_output=True)
    (path,) = tmp_path.glob("*.unspool")
    assert re.fullmatch(r"unspool-shares-\d+\.unspool", path.name)


@pytest.mark.parametrize(("name", "start"), [("a.html", b"<!doctype html>"), ("a.pb.gz", b"\x1f\x8b")])
def test_the_suffix_chooses_the_format(tmp_path: Path, name: str, start: bytes) -> None:
    result = record(tmp_path, [build(tmp_path, "shares.c"), "200"], name=name)
    assert result.status == 0
    assert result.path.read_bytes()[: len(start)].lower() == start
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_an_unknown_suffix_is_refused_before_anything_runs(tmp_path: Path) -> None:
    result = record(tmp_path, ["sh", "-c", "echo ran"], name="a.xyz")
    assert result.status != 0 and result.output == "" and ".html" in result.errors


# ---------------------------------------------------------------- signals, and the end of unspool


def started(tmp_path: Path, *command: str | Path, options: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    path = tmp_path / "recording.unspool"
    process = subprocess.Popen(
        [*UNSPOOL, "record", *options, "-o", path, "--", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
        cwd=tmp_path,
    )
    assert process.stdout is not None
    process.stdout.readline()  # the program says that it is there
    return process


BUSY = "echo here; i=0; while [ $i -lt 100000000 ]; do i=$((i+1)); done"


def test_ctrl_c_ends_the_program_and_the_recording_is_written(tmp_path: Path) -> None:
    process = started(tmp_path, "sh", "-c", BUSY)
    time.sleep(1)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 130
    assert "written to" in errors


def test_sigterm_is_passed_on(tmp_path: Path) -> None:
    process = started(tmp_path, "sh", "-c", BUSY)
    time.sleep(1)
    process.terminate()
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 143
    assert "written to" in errors


def test_the_program_outlives_unspool(tmp_path: Path) -> None:
    script = "echo $$; i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo done >done"
    process = started(tmp_path, "sh", "-c", script)
    process.kill()
    process.communicate()
    deadline = time.monotonic() + TIMEOUT
    while not (tmp_path / "done").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert (tmp_path / "done").exists()


def test_the_recording_may_end_before_the_program(tmp_path: Path) -> None:
    script = "echo here; i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done; exit 5"
    process = started(tmp_path, "sh", "-c", script, options=("-d", "0.5"))
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 5
    assert "written to" in errors
