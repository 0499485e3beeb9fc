"""The program that bench/stack.py looks at: 200 threads of the system's Python, most of them waiting below
5 to 30 Python calls, a few computing."""

import sys
import threading
import time

THREADS = 200


def wait(depth: int, lock: threading.Lock) -> None:
    if depth:
        for _ in map(wait, [depth - 1], [lock]):  # through C code, too
            pass
    else:
        lock.acquire()


def compute() -> None:
    while True:
        sum(sorted(range(1000), key=lambda n: -n))
        time.sleep(0.01)


lock = threading.Lock()
lock.acquire()
for number in range(THREADS - 1):
    if number % 50 == 0:
        threading.Thread(target=compute, daemon=True).start()
    else:
        threading.Thread(target=wait, args=(5 + number % 26, lock), daemon=True).start()
print("ready")
sys.stdout.flush()
time.sleep(10_000)
