"""What the kernel's rules say of a user's rights, and the words for it."""

import pytest

from unspool.capture.permission import Rights
from unspool.capture.task_status import TaskStatus


@pytest.mark.parametrize(
    ("user", "capability", "yama", "own", "others"),
    [
        (0, True, None, None, None),
        (0, True, 2, None, None),
        (0, True, 3, "ptrace_scope = 3", "ptrace_scope = 3"),
        (0, False, None, "no CAP_SYS_PTRACE", "no CAP_SYS_PTRACE"),
        (1000, False, None, None, "only root may"),
        (1000, False, 0, None, "only root may"),
        (1000, False, 1, "ptrace_scope = 1", "only root may"),
        (1000, False, 2, "ptrace_scope = 2", "ptrace_scope = 2"),
        (1000, False, 3, "ptrace_scope = 3", "ptrace_scope = 3"),
        (1000, True, 2, None, None),
    ],
)
def test_whose_processes_may_be_looked_at(
    user: int, capability: bool, yama: int | None, own: str | None, others: str | None
) -> None:
    """Each refusal names its cause, and something to do about it."""
    rights = Rights(user, capability, yama, False)
    for is_other, cause in ((False, own), (True, others)):
        refused = rights.why_not(is_other)
        assert (refused is None) == (cause is None)
        if refused is not None and cause is not None:
            assert cause in refused[0] and refused[1]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"Kthread": "1", "Pid": "77", "PPid": "2"}, True),
        ({"Kthread": "0", "Pid": "77", "PPid": "2", "State": "Z"}, False),
        ({"Pid": "2", "PPid": "0"}, True),
        ({"Pid": "77", "PPid": "2"}, True),
        ({"Pid": "77", "PPid": "1"}, False),
        ({"Pid": "77", "PPid": "2", "VmSize": "100 kB"}, False),
    ],
)
def test_what_a_kernel_thread_is(fields: dict[str, str], expected: bool) -> None:
    """New kernels say it; on old ones it is a process without memory that kthreadd (2) has started."""
    assert TaskStatus(fields).is_kernel_thread == expected
