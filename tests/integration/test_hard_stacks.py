"""Stacks that unwinders lose, of live programs: every function that must be there, and how the stack ends."""

import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.integration.targets import PROGRAMS, SYMBOLIZER, build, functions, next_line, started, threads_of
from unspool.capture.live_process import LiveProcess
from unspool.cli.stack_frames import ThreadLines, symbolize_threads
from unspool.unwind import How


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


def the_thread(pid: int) -> ThreadLines:
    threads = threads_of(pid)
    assert len(threads) == 1
    return threads[0]


def in_order(wanted: Iterable[str], names: list[str | None]) -> bool:
    """Whether names has all that is wanted, one after the other, others between them allowed."""
    rest = iter(names)
    return all(any(name == want for name in rest) for want in wanted)


def wait_for_state(pid: int, state: str) -> None:
    """Until the process is in a state of proc(5)."""
    for _ in range(500):
        if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == state:
            return
        time.sleep(0.01)
    raise AssertionError(f"process {pid} is not in state {state}")


def test_threads_that_wait_deep_in_libc(folder: Path) -> None:
    """Reading a line, waiting for a condition, in the callback of qsort."""
    with started(build(folder, "blocked.c")) as target:
        threads = threads_of(target.pid)
    assert len(threads) == 4
    assert all(thread.stack is not None and thread.stack.complete for thread in threads)
    names = [functions(thread) for thread in threads]
    assert names[0][:2] == ["__libc_pause", "wait_for_ever"] and "main" in names[0]
    for thread_names, last in zip(names[1:], ("read_line", "wait_for_condition", "sort"), strict=True):
        assert in_order([last, "run", "start_thread"], thread_names), thread_names
    assert in_order(["_IO_fgets", "read_line"], names[1])
    assert in_order(["wait_for_ever", "compare", "msort_with_tmp", "sort"], names[3])


def test_a_handler_on_a_stack_of_its_own(folder: Path) -> None:
    """Both stacks are copied, and the interrupted function is looked up as interrupted."""
    with started(build(folder, "alternate_stack.c")) as target:
        thread = the_thread(target.pid)
    names = functions(thread)
    assert in_order(["wait_for_ever", "handle", "__restore_rt", "work", "call", "main", "_start"], names)
    assert thread.stack is not None and thread.stack.complete
    interrupted = next(line for line in thread.lines if line.location.function == "work")
    assert interrupted.frame.how is How.SIGNAL_FRAME
    source = (PROGRAMS / "alternate_stack.c").read_text().splitlines()
    assert interrupted.location.line == 1 + source.index("    *(volatile int *)NULL = 1;")


def test_after_a_jump_through_a_null_pointer(folder: Path) -> None:
    """The pc is 0: the caller is the return address that the call pushed, since its register holds 0, too."""
    with started(build(folder, "alternate_stack.c"), "null") as target:
        thread = the_thread(target.pid)
    assert in_order(["handle", "call", "main", "_start"], functions(thread))
    assert thread.stack is not None and thread.stack.complete
    at_null = next(line for line in thread.lines if line.frame.address == 0)
    assert at_null.frame.how is How.SIGNAL_FRAME and at_null.frame.module is None


def test_in_a_call_of_the_vdso(folder: Path) -> None:
    """Every one of 100 samples of a loop over clock_gettime is whole; most are in the vDSO."""
    with started(build(folder, "vdso.c")) as target:
        process = LiveProcess(target.pid)
        process.load_modules()
        walked = [(thread, process.walk(thread)) for _ in range(100) for thread in process.capture()]
    threads = symbolize_threads(walked, SYMBOLIZER, None, None)
    assert len(threads) == 100
    for thread in threads:
        assert thread.stack is not None and thread.stack.complete, functions(thread)
        assert in_order(["ask_for_ever", "main", "_start"], functions(thread))
    assert sum(thread.lines[0].binary == "[vdso]" for thread in threads) > 20


def test_the_parent_of_a_vfork_that_has_not_ended(folder: Path) -> None:
    """It can't be stopped, but it waits in the kernel, which knows pc, sp and the return address in rdi."""
    with started(build(folder, "vfork_parent.c")) as target:
        wait_for_state(target.pid, "D")
        thread = the_thread(target.pid)
        assert in_order(["__libc_vfork", "spawn", "main", "_start"], functions(thread))
        assert thread.stack is not None and thread.stack.complete
        assert thread.thread.problem is not None and "can't be stopped" in thread.thread.problem
        children = Path(f"/proc/{target.pid}/task/{target.pid}/children").read_text().split()
        child = the_thread(int(children[0]))
        assert in_order(["wait_for_line", "wait_in_child", "spawn", "main", "_start"], functions(child))
        assert next_line(target, ask=True) == "done\n"  # the child ends, the parent goes on


def test_with_an_exception_in_flight(folder: Path) -> None:
    """A destructor waits, called from the landing pad, which lies in a part that was split off."""
    with started(build(folder, "exception.cpp")) as target:
        thread = the_thread(target.pid)
    waiting = ["wait_for_line()", "demo::Waits::~Waits()", "demo::passes_through()"]
    assert in_order([*waiting, "main", "_start"], functions(thread))
    assert thread.stack is not None and thread.stack.complete


def test_ten_thousand_frames(folder: Path) -> None:
    with started(build(folder, "deep.c")) as target:
        thread = the_thread(target.pid)
    assert thread.stack is not None and thread.stack.complete
    assert functions(thread).count("descend") == 10_000
    assert functions(thread)[-1] == "_start"


def test_code_that_was_made_at_run_time(folder: Path) -> None:
    """One function with a frame record, one without: both are followed through their code, which is read in
    the process; nothing proves it, since calls through registers do not say where they lead."""
    with started(build(folder, "jit_page.c")) as target:
        thread = the_thread(target.pid)
    names = functions(thread)
    assert in_order(["wait_for_ever", "callback", "call", "main", "_start"], names)
    callback = names.index("callback")
    assert names[callback + 1 : callback + 4] == [None, None, "call"]
    assert thread.stack is not None and thread.stack.guessed
    assert [line.frame.how for line in thread.lines[callback + 2 : callback + 4]] == [How.CODE_ANALYSIS] * 2


def test_a_perf_map_names_code_that_was_made_at_run_time(folder: Path) -> None:
    with started(build(folder, "jit_page.c"), "/tmp") as target:
        perf_map = Path(f"/tmp/perf-{target.pid}.map")
        try:
            names = functions(the_thread(target.pid))
        finally:
            perf_map.unlink()
    assert in_order(["callback", "without record", "with record", "call", "main"], names)


def test_a_program_whose_main_thread_has_ended(folder: Path) -> None:
    """/proc/PID has no memory then; the other threads have."""
    with started(build(folder, "main_ended.c")) as target:
        wait_for_state(target.pid, "Z")
        threads = threads_of(target.pid)
    assert [thread.stack is None for thread in threads] == [True, False]
    assert threads[0].thread.problem == "it has ended"
    assert in_order(["wait_for_ever", "run", "start_thread"], functions(threads[1]))
    assert threads[1].stack is not None and threads[1].stack.complete


def test_the_id_of_a_thread_leads_to_its_process(folder: Path) -> None:
    """As `top -H` shows it."""
    with started(build(folder, "blocked.c")) as target:
        tid = max(int(task.name) for task in Path(f"/proc/{target.pid}/task").iterdir())
        process = LiveProcess(tid)
        assert process.pid == target.pid
        assert len(process.stacks()) == 4
    assert process.problems == [f"{tid} is a thread of process {target.pid}: --thread {tid} shows it alone"]


def test_a_large_stack_that_is_no_mapping_of_its_own(folder: Path) -> None:
    """A coroutine's stack inside a large arena: the first copy is too short, a second one is not."""
    with started(build(folder, "arena_stack.c")) as target:
        thread = the_thread(target.pid)
    names = functions(thread)
    assert names.count("descend") == 20_000
    assert names[-2:] == ["coroutine", "__start_context"]
    assert thread.stack is not None and thread.stack.complete
