"""Collapsed stacks: each line, spelled out."""

from tests.profile_maker import ProfileMaker
from unspool.capture.samples import Event, Flag
from unspool.export.collapsed import collapsed
from unspool.unwind import StackEnd


def lines(maker: ProfileMaker, event: int = 0) -> list[str]:
    return collapsed(maker.profile(), event).decode().splitlines()


def test_equal_stacks_are_one_line_with_their_weight() -> None:
    maker = ProfileMaker()
    thread = maker.thread("worker")
    maker.sample(thread, "main@app | work@app", weight=400)
    maker.sample(thread, "main@app | work@app", weight=100)
    maker.sample(thread, "main@app", weight=7)
    assert lines(maker) == ["worker;main;work 500", "worker;main 7"]


def test_calls_at_different_lines_are_one_stack() -> None:
    maker = ProfileMaker()
    thread = maker.thread("worker")
    maker.sample(thread, "main@app:main.c:1 | work@app:work.c:5", weight=1)
    maker.sample(thread, "main@app:main.c:2 | work@app:work.c:6", weight=2)
    assert lines(maker) == ["worker;main;work 3"]


def test_inlined_calls_kernel_and_jit_code_are_marked() -> None:
    maker = ProfileMaker()
    stack = "main@app / inner@app / innermost@app | compiled@[jit] | read@libc.so.6 | sys_read@[kernel]"
    maker.sample(maker.thread("worker"), stack, weight=1)
    assert lines(maker) == ["worker;main;inner_[i];innermost_[i];compiled_[j];read;sys_read_[k] 1"]


def test_a_frame_without_a_name_is_its_binary_and_address() -> None:
    maker = ProfileMaker()
    maker.sample(maker.thread("worker"), "@app", weight=1)
    assert lines(maker) == ["worker;app+0x1000 1"]


def test_a_cut_stack_says_why_and_where() -> None:
    maker = ProfileMaker()
    thread = maker.thread("worker")
    maker.sample(thread, "lost@plugin.so | work@app", weight=2, end=StackEnd.NO_UNWIND_INFO)
    maker.sample(thread, "sys_read@[kernel]", weight=1, flags=Flag.KERNEL_CALLER_UNKNOWN)
    maker.sample(thread, "late@innocent.so", end=StackEnd.NO_UNWIND_INFO, weight=3, flags=Flag.NO_TABLE_YET)
    assert lines(maker) == [
        "worker;[cut: a library's unwind table was not there yet];late 3",
        "worker;[cut: nothing says how to go on, in plugin.so];lost;work 2",
        "worker;[kernel, caller unknown];sys_read_[k] 1",
    ]


def test_what_belongs_to_the_format_is_replaced_in_names() -> None:
    maker = ProfileMaker()
    maker.sample(maker.thread("a;b\nc"), "f;g\r\n 12@app | \udc80\x1b[31m@app", weight=1)
    assert lines(maker) == ["a:b\\nc;f:g\\r\\n 12;\\udc80\\x1b[31m 1"]


def test_threads_with_the_same_name_are_added_up_and_others_not() -> None:
    maker = ProfileMaker()
    for name, tid in (("pool", 1), ("pool", 2), ("", 3)):
        maker.sample(maker.thread(name, tid=tid), "main@app", weight=5)
    assert lines(maker) == ["pool;main 10", "3;main 5"]


def test_only_the_event_that_was_asked_for() -> None:
    maker = ProfileMaker(events=[Event("cpu", "nanoseconds"), Event("faults", "count")])
    thread = maker.thread("worker")
    maker.sample(thread, "main@app", weight=1000)
    maker.sample(thread, "main@app | touch@app", weight=3, event=1)
    assert lines(maker, 0) == ["worker;main 1000"]
    assert lines(maker, 1) == ["worker;main;touch 3"]


def test_an_empty_profile_has_no_lines() -> None:
    assert lines(ProfileMaker()) == []
