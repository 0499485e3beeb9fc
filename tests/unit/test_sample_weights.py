"""A sample weighs the CPU time since its thread's last one; time nobody saw is nobody's."""

import numpy as np

from unspool.capture.sample_weights import TICK, ThreadClocks

PERIOD = 5_000_000


def weigh(
    clocks: ThreadClocks, *samples: tuple[int, int] | tuple[int, int, int], at_call: bool = True
) -> list[int]:
    """Weights of samples (tid, CPU time, system time = 0)."""
    columns = np.array([(*sample, 0)[:3] for sample in samples], np.int64).reshape(-1, 3)
    tids, cpu, system = columns.T
    events = np.zeros(len(tids), np.bool_)
    return [
        int(w)
        for w in clocks.weights(
            tids, cpu.astype(np.uint64), system.astype(np.uint64), events, lambda _: at_call
        )
    ]


def test_each_sample_weighs_the_time_since_the_threads_last_one() -> None:
    clocks = ThreadClocks(PERIOD)
    mixed = [(7, 4_000_000), (9, 5_000_000), (7, 12_000_000), (7, 16_000_000), (9, 9_000_000)]
    assert weigh(clocks, *mixed) == [4_000_000, 5_000_000, 8_000_000, 4_000_000, 4_000_000]


def test_a_thread_goes_on_in_the_next_batch() -> None:
    clocks = ThreadClocks(PERIOD)
    assert weigh(clocks, (7, 4_000_000)) == [4_000_000]
    assert weigh(clocks, (7, 9_000_000)) == [5_000_000]
    assert clocks.last(7) == 9_000_000


def test_no_samples() -> None:
    assert weigh(ThreadClocks(PERIOD)) == []


def test_time_before_the_recording_does_not_count() -> None:
    clocks = ThreadClocks(PERIOD)
    clocks.begin(7, 1_000_000_000)
    assert weigh(clocks, (7, 1_003_000_000)) == [3_000_000]


def test_a_new_thread_with_an_old_id_begins_anew() -> None:
    clocks = ThreadClocks(PERIOD)
    weigh(clocks, (7, 1_000_000_000))
    clocks.end(7)
    assert weigh(clocks, (7, 2_000_000)) == [2_000_000]


def test_time_while_the_signal_was_blocked_is_not_given_to_where_it_was_unblocked() -> None:
    clocks = ThreadClocks(PERIOD)
    assert weigh(clocks, (7, 5_000_000), (7, 805_000_000)) == [5_000_000, PERIOD + 4 * TICK]


def test_a_signal_that_comes_late_in_running_code_was_late_by_chance() -> None:
    clocks = ThreadClocks(PERIOD)
    assert weigh(clocks, (7, 5_000_000), (7, 45_000_000), at_call=False) == [5_000_000, 40_000_000]


def test_not_even_there_is_all_time_its_own() -> None:
    """Samples may have been lost, or a signal handler has returned that had blocked the signal."""
    clocks = ThreadClocks(PERIOD)
    samples = (7, 5_000_000), (7, 805_000_000)
    assert weigh(clocks, *samples, at_call=False) == [5_000_000, PERIOD + 16 * TICK]


def test_a_long_stay_in_the_kernel_is_its_callers() -> None:
    clocks = ThreadClocks(PERIOD)
    assert weigh(clocks, (7, 5_000_000, 0), (7, 805_000_000, 790_000_000)) == [5_000_000, 800_000_000]


def test_clocks_that_go_back_give_no_time() -> None:
    """Whatever a program writes into its ring."""
    clocks = ThreadClocks(PERIOD)
    largest = (1 << 62) - 1
    assert weigh(clocks, (7, 5_000_000), (7, 1), (7, 6_000_000)) == [5_000_000, 0, 1_000_000]
    assert weigh(clocks, (7, largest, largest), (7, 2)) == [largest - 6_000_000, 0]


def weigh_with_events(clocks: ThreadClocks, *samples: tuple[str, int]) -> list[int]:
    """Weights of samples of one thread: ("event", CPU time), ("timer", ...), or ("call", ...), which is a
    timer's at the return from a system call."""
    kinds = [kind for kind, _ in samples]
    cpu = np.array([time for _, time in samples], np.uint64)
    events = np.array([kind == "event" for kind in kinds])
    tids, system = np.full(len(cpu), 7, np.int64), np.zeros(len(cpu), np.uint64)
    return [int(w) for w in clocks.weights(tids, cpu, system, events, lambda n: kinds[n] == "call")]


def test_events_weigh_a_period_at_most_since_the_rest_was_spent_in_the_kernel() -> None:
    clocks = ThreadClocks(500_000)
    samples = [("event", time * 500_000) for time in (1, 2, 3, 9, 10)]
    assert weigh_with_events(clocks, *samples) == [500_000] * 5


def test_kernel_time_is_the_timers() -> None:
    """Its samples in user code count nothing: events have counted that."""
    clocks = ThreadClocks(500_000)
    before = [("event", 3_800_000), ("timer", 4_000_000), ("event", 4_300_000)]
    assert weigh_with_events(clocks, *before) == [500_000, 0, 500_000]
    after = [("call", 12_000_000), ("event", 12_500_000)]
    assert weigh_with_events(clocks, *after) == [8_000_000, 500_000]


def test_a_timers_signal_stands_for_the_events_that_was_not_delivered_beside_it() -> None:
    clocks = ThreadClocks(500_000)
    samples = [("event", 3_500_000), ("timer", 4_000_000), ("event", 4_500_000)]
    assert weigh_with_events(clocks, *samples) == [500_000] * 3


def test_no_time_is_given_twice() -> None:
    """The timer's signal at 4 ms was not delivered: what the next one weighs is what no event has weighed."""
    clocks = ThreadClocks(1_000_000)
    events = [("event", time * 1_000_000) for time in range(1, 7)]
    assert weigh_with_events(clocks, *events, ("call", 8_000_000)) == [1_000_000] * 6 + [2_000_000]


def test_a_timer_alone_counts_all() -> None:
    clocks = ThreadClocks(500_000)
    assert weigh_with_events(clocks, ("timer", 4_000_000), ("timer", 8_000_000)) == [4_000_000] * 2
