"""A writer that is killed, a disk that is full: what was written before can be read."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.compilers import build
from tests.recordings import Recording
from unspool.profile import Profile, RecordingError

OWN_MOUNTS = (
    ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
)

# Writes samples whose weight is 1 until it is killed, one at a time, and says how many it has written when.
WRITER = """
import sys, time
from pathlib import Path
from tests.recordings import Recording

recording = Recording(Path(sys.argv[1]))
count = 0
while True:
    recording.sample([f"f{count % 50}", f"g{count % 7}", "main"])
    count += 1
    if count % 20 == 0:
        print(count, time.monotonic(), flush=True)
        time.sleep(0.002)
"""


def killed_writer(path: Path, seconds: float) -> tuple[int, int]:
    """How many samples it had written a second before it wrote others, and how many in all."""
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        first = writer.stdout.readline()
        time.sleep(seconds)
        writer.kill()
        lines = [first, *writer.stdout]
    assert writer.returncode == -signal.SIGKILL
    told = [(int(count), float(at)) for count, at in (line.split() for line in lines if line.endswith("\n"))]
    # Between the last two lines it wrote samples; a second before the first of the two, everything was safe.
    safe = [count for count, at in told if len(told) > 1 and at <= told[-2][1] - 1]
    return max(safe, default=0), told[-1][0]


@pytest.mark.parametrize("seed", range(2))
def test_at_most_the_last_second_is_missing_after_a_kill(tmp_path: Path, seed: int) -> None:
    """At a random moment. The next command makes one whole file of it."""
    path = tmp_path / "killed.unspool"
    safe, written = killed_writer(path, random.Random(seed).uniform(1.5, 2.5))
    assert Path(f"{path}-wal").stat().st_size > 0
    profile = Profile.open(str(path))
    assert safe <= profile.total_weight() <= written + 20
    assert not profile.is_finished
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    again = Profile.open(str(path))
    assert again.sample_time.tolist() == profile.sample_time.tolist()


def test_a_kill_before_the_first_sample(tmp_path: Path) -> None:
    """Leaves a recording without samples, or a file of which it is said what it is."""
    path = tmp_path / "killed.unspool"
    killed_writer(path, 0)
    assert Profile.open(str(path)).total_weight() >= 0


READ_ONLY = """
mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" || exit 77
exec "$2" -m unspool query "$1/r.unspool" "SELECT count(*) FROM samples" --csv
"""


def queried_where_nothing_can_be_written(folder: Path) -> subprocess.CompletedProcess[str]:
    """Root may write into any directory, so the file system refuses."""
    command = [*OWN_MOUNTS, "sh", "-c", READ_ONLY, "sh", folder, sys.executable]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 77, done.stderr
    return done


def test_what_a_dead_writer_left_is_read_where_nothing_can_be_written(tmp_path: Path) -> None:
    """As long as all its files are there; else it is said what to do."""
    path = tmp_path / "r.unspool"
    safe, _ = killed_writer(path, 1.5)
    done = queried_where_nothing_can_be_written(tmp_path)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.splitlines()[1]) >= safe
    Path(f"{path}-shm").unlink()
    done = queried_where_nothing_can_be_written(tmp_path)
    assert done.returncode == 1
    assert "copy both files to where you may write" in done.stderr


def test_a_finished_file_is_read_where_nothing_can_be_written(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "r.unspool")
    recording.sample(["work"])
    recording.finish()
    done = queried_where_nothing_can_be_written(tmp_path)
    assert (done.returncode, done.stdout) == (0, "count(*)\n1\n"), done.stderr


FULL_DISK = """
import sys, time
from pathlib import Path
from tests.recordings import Recording
from unspool.profile import RecordingError

recording = Recording(Path(sys.argv[1]))
count = 0
try:
    with recording.writer:
        while True:
            recording.sample([f"f{count % 50}", f"g{count % 7}", "main"])
            count += 1
            if count == 500:
                time.sleep(1)
                print(count, flush=True)
except RecordingError as error:
    print(error)
"""


def test_a_full_disk_is_told_and_what_was_written_is_there(tmp_path: Path) -> None:
    """On a file system of 300 KB, which stays full."""
    script = f"""
mount -t tmpfs -o size=300k none {tmp_path} || exit 77
{sys.executable} -c "$1" {tmp_path}/full.unspool
{sys.executable} -m unspool query {tmp_path}/full.unspool "SELECT count(*) FROM samples" --csv
"""
    command = [*OWN_MOUNTS, "sh", "-c", script, "sh", FULL_DISK]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": "."})
    assert done.returncode != 77, done.stderr
    committed, message, _, counted = done.stdout.splitlines()
    assert int(committed) == 500
    assert "full" in message and "free some disk space" in message
    assert int(counted) >= 500


def test_nothing_is_written_after_a_failure(tmp_path: Path) -> None:
    """The first error is raised again, by finish, too."""
    recording = Recording(tmp_path / "r.unspool")
    recording.sample(["work"])
    recording.writer._commit()
    with recording.writer._lock:
        recording.writer._connection.execute("PRAGMA max_page_count = 1")
    with pytest.raises(RecordingError, match="free some disk space"):
        for number in range(100_000):
            recording.sample([f"f{number}", "main"])
    with pytest.raises(RecordingError, match="free some disk space"):
        recording.sample(["work"])
    with pytest.raises(RecordingError, match="free some disk space"):
        recording.finish()
    profile = Profile.open(str(recording.path))
    assert profile.total_weight() > 0 and not profile.is_finished


WAITS_FOR_THE_DISK = """
#include <stdlib.h>
int fsync(int fd) { (void)fd; abort(); }
int fdatasync(int fd) { (void)fd; abort(); }
"""
WRITES = """
import sys
from pathlib import Path
from tests.recordings import Recording

recording = Recording(Path(sys.argv[1]))
recording.sample(["work"])
recording.writer.commit()
recording.finish()
"""


def test_nobody_waits_for_the_disk(tmp_path: Path) -> None:
    """On a busy disk each time takes many seconds, in which rings run full."""
    library = build(tmp_path, "abort.so", "gcc", "-shared", "-fPIC", code=WAITS_FOR_THE_DISK)
    environment = os.environ | {"LD_PRELOAD": str(library), "PYTHONPATH": "."}
    command = [sys.executable, "-c", WRITES, str(tmp_path / "r.unspool")]
    assert subprocess.run(command, env=environment).returncode == 0


class _FailingCommit:
    """A connection that can do everything but that."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if sql == "COMMIT":
            raise sqlite3.OperationalError("disk I/O error")
        return self._connection.execute(sql, *parameters)


def test_a_failed_commit_is_told_by_the_next_one_who_writes(tmp_path: Path) -> None:
    """Nobody else would hear of what the committing thread met."""
    recording = Recording(tmp_path / "r.unspool")
    recording.writer._connection = _FailingCommit(recording.writer._connection)  # type: ignore[assignment]
    deadline = time.monotonic() + 30
    with recording.writer, pytest.raises(RecordingError, match="disk I/O error"):
        while time.monotonic() < deadline:
            recording.sample(["work"])
            time.sleep(0.05)
