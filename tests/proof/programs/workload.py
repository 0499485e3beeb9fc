"""A Python program with threads in many places of the interpreter and its extensions; any version runs it."""

import bz2
import hashlib
import json
import re
import select
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Callable


def compute() -> None:
    while True:
        json.loads(json.dumps([{"number": n, "text": str(n)} for n in range(200)]))
        sorted(range(1000), key=lambda n: -n)
        re.sub(r"(a+)b", lambda match: match.group(1), "aaab" * 200)


def digest() -> None:
    while True:
        hashlib.sha256(b"x" * 1000000).hexdigest()
        bz2.decompress(bz2.compress(b"abc" * 20000))


def query() -> None:
    database = sqlite3.connect(":memory:")
    database.create_function("twice", 1, lambda value: value * 2)
    while True:
        database.execute(
            "with recursive n(i) as (select 1 union all select i + 1 from n where i < 500)"
            " select sum(twice(i)) from n"
        ).fetchall()


def recurse(depth: int = 60) -> None:
    if depth == 0:
        time.sleep(0.01)
    else:
        next(map(recurse, [depth - 1]))


def wait_for_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def wait_for_condition() -> None:
    condition = threading.Condition()
    with condition:
        condition.wait()


def wait_for_socket() -> None:
    ours, _theirs = socket.socketpair()
    ours.recv(1)


def wait_for_poll() -> None:
    ours, _theirs = socket.socketpair()
    select.select([ours], [], [])


def forever(function: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        while True:
            function()

    return run


for function in (
    compute,
    digest,
    query,
    forever(recurse),
    wait_for_lock,
    wait_for_condition,
    wait_for_socket,
    wait_for_poll,
):
    threading.Thread(target=function, daemon=True).start()
print("ready")
sys.stdout.flush()
time.sleep(1000)
