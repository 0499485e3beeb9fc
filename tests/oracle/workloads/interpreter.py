"""The interpreter itself: objects, exceptions, generators, re, json, sorting, big integers, in a thread."""

import json
import re
import sys
import threading
from collections.abc import Iterator

ROUNDS = int(sys.argv[1])


def numbers(limit: int) -> Iterator[int]:
    yield from (i * i for i in range(limit) if i % 3)


def work() -> None:
    for turn in range(ROUNDS):
        table = {f"key{i}": [i, {"half": i / 2}] for i in numbers(40)}
        assert json.loads(json.dumps(table, indent=1)) == table
        words = re.findall(r"(?:[a-z]+)(\d+)", " ".join(table))
        assert sorted(words, key=int)[0] == "1"
        assert pow(3, 2000 + turn, 10**40 + 7) and len(str(7**600)) == 508
        try:
            {}["nothing"]
        except KeyError as error:
            assert error.args
        assert "{} {!r} {:.3f}".format("a", [1], 2.5) == "a [1] 2.500"


thread = threading.Thread(target=work)
thread.start()
thread.join()
