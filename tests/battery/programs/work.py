"""work.py: Python: threads, subprocesses, os.system, multiprocessing, signals, NumPy where it is there."""

import hashlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading


def compute(rounds: int) -> int:
    value = 1
    for _ in range(rounds):
        value = value * 6364136223846793005 + 1442695040888963407 & 0xFFFFFFFFFFFFFFFF
    return value


def in_child(number: int) -> int:
    return compute(20000) % 1000 + number


def main() -> None:
    print([name for name in os.environ if name in ("LD_PRELOAD", "UNSPOOL_SESSION")], flush=True)
    threads = [threading.Thread(target=compute, args=(200000,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(hashlib.sha256(b"x" * 20_000_000).hexdigest(), flush=True)
    print(subprocess.run(["/bin/echo", "child"], capture_output=True, check=True).stdout, flush=True)
    print(os.system("exit 3"), flush=True)
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            print(pool.map(in_child, range(8)), flush=True)
    print(signal.getsignal(signal.SIGPROF), flush=True)
    caught = []
    print(signal.signal(signal.SIGPROF, lambda number, _: caught.append(number)), flush=True)
    signal.setitimer(signal.ITIMER_PROF, 0.01, 0.01)
    while len(caught) < 3:
        compute(1000)
    signal.setitimer(signal.ITIMER_PROF, 0)
    print(caught[:3])


if __name__ == "__main__":
    sys.exit(main())
