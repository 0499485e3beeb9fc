"""own_profile.py: a program with a handler for SIGPROF and a timer of its own, which profiles itself.

Arguments: when it installs the handler (before, or during the profile), and the rate, 0 = it does not profile
itself."""

import signal
import sys
import time

import unspool

calls = 0


def handler(number: int, frame: object) -> None:
    global calls
    assert number == signal.SIGPROF
    calls += 1


def burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def install() -> None:
    assert signal.signal(signal.SIGPROF, handler) == signal.SIG_DFL
    signal.setitimer(signal.ITIMER_PROF, 0.02, 0.02)


def main() -> None:
    when, rate = sys.argv[1], int(sys.argv[2])
    if when == "before":
        install()
    profile = unspool.profile(rate=rate) if rate else None
    if profile is not None:
        profile.__enter__()
    burn(0.1)
    if when == "during":
        install()
    burn(0.5)
    if profile is not None:
        profile.__exit__(None, None, None)
    while not calls:
        burn(0.01)
    assert when == "during" or calls < 100, calls  # ours do not reach it
    assert signal.getsignal(signal.SIGPROF) is handler
    seen = calls
    while calls < seen + 3:  # it is still called
        burn(0.01)
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.raise_signal(signal.SIGPROF)
    seen = calls
    burn(0.1)
    assert calls == seen  # and nothing else comes any more
    print("ok")


main()
