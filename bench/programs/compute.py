"""compute.py ROUNDS: a CPU-bound Python program: recursion, dictionaries, strings, sorting. Its last line is
that of usage.h."""

import os
import resource
import sys
import time


def fibonacci(n: int) -> int:
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def words(seed: int) -> dict[str, int]:
    counts: dict[str, int] = {}
    for n in range(2000):
        word = f"word{(seed * 31 + n * n) % 500}"
        counts[word] = counts.get(word, 0) + 1
    return counts


def main(rounds: int) -> None:
    for number in range(rounds):
        fibonacci(15)
        sorted(words(number).items(), key=lambda item: (-item[1], item[0]))


began = time.monotonic()
os.sched_setaffinity(0, {0})
main(int(sys.argv[1]))
wall = time.monotonic() - began
usage = resource.getrusage(resource.RUSAGE_SELF)
print(f"usage {usage.ru_utime + usage.ru_stime:.6f} {wall:.6f} {began:.6f}")
