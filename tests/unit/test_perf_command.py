"""Which command a recording of perf is of."""

import pytest

from unspool.capture.perf_command import RecordedCommand
from unspool.capture.perf_records import Named


@pytest.mark.parametrize(
    ("words", "executed", "sampled", "command"),
    [
        ("perf record -g ./prog -o x", "prog", "prog", "./prog -o x"),
        ("perf record -g -- /usr/bin/prog", "prog", "other", "/usr/bin/prog"),
        ("perf record -o prog prog -a", "prog", "prog", "prog -a"),
        ("perf record a-program-with-a-long-name 1", "a-program-with-", "", "a-program-with-a-long-name 1"),
        ("perf record -p 12", "", "server", "server"),
        ("perf record -p 12 sleep 2", "child", "server", "server"),
        ("perf record -a sleep 2", "sleep", "swapper", ""),
        ("perf record -ga -- sleep 2", "sleep", "swapper", ""),
        ("perf record --all-cpus", "", "idle", ""),
        ("perf record -C 1 sleep 2", "sleep", "sleep", ""),
        ("perf record --cpu=1 sleep 2", "sleep", "sleep", ""),
        ("", "prog", "", "prog"),
        ("", "", "", ""),
    ],
)
def test_the_command(words: str, executed: str, sampled: str, command: str) -> None:
    """With its arguments where perf started it; not perf's own; none where everything was recorded."""
    assert RecordedCommand(executed, sampled).of(words.split()) == command


def test_the_first_program_that_is_executed_counts() -> None:
    """Not a mere change of name, nor what it starts itself."""
    command = RecordedCommand()
    command.note_records([Named(1, 5, 5, "renamed", is_exec=False), Named(2, 5, 5, "prog", is_exec=True)])
    command.note_records([Named(3, 6, 6, "child", is_exec=True)])
    assert command.executed == "prog"
