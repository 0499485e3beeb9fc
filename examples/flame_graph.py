"""Records a real workload, Python with JSON, regular expressions, sqlite, zlib and numpy on two threads, and
says where its flame graph is: `make demo`. With "work" as argument it is the workload."""

import json
import re
import sqlite3
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path

SECONDS = 5
FOLDER = Path("out/demo")


def orders(until: float) -> None:
    """Reads orders, keeps them in a database, asks it questions."""
    text = json.dumps(
        [{"customer": f"c{n % 97}", "items": list(range(n % 7)), "price": n / 3} for n in range(500)]
    )
    database = sqlite3.connect(":memory:")
    database.execute("create table orders (customer text, price real)")
    while time.monotonic() < until:
        read = json.loads(text)
        database.executemany(
            "insert into orders values (?, ?)", ((order["customer"], order["price"]) for order in read)
        )
        database.execute("select customer, sum(price) from orders group by customer order by 2").fetchall()
        database.execute("delete from orders")
        re.findall(r'"customer": "(c\d+)"[^}]*?(\d+\.\d+)', text)


def signals(until: float) -> None:
    """Smooths noise, and packs it."""
    import numpy as np

    noise = np.random.default_rng(1).normal(size=200_000)
    while time.monotonic() < until:
        spectrum = np.fft.rfft(noise)
        spectrum[1000:] = 0
        smooth = np.fft.irfft(spectrum)
        zlib.compress(smooth.astype(np.float32).tobytes(), 1)
        np.sort(noise)


def work() -> None:
    """The workload."""
    until = time.monotonic() + SECONDS
    threads = [threading.Thread(target=task, args=(until,), name=task.__name__) for task in (orders, signals)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> int:
    """Exit status: that of the first `unspool` that fails."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    recording, page = FOLDER / "demo.unspool", FOLDER / "demo.html"
    recording.unlink(missing_ok=True)
    program = [sys.executable, __file__, "work"]
    commands = (
        ["record", "-o", str(recording), "--", *program],
        ["report", str(recording)],
        ["export", str(recording), "-o", str(page)],
    )
    for command in commands:
        shown = " ".join(command).replace(sys.executable, "python3")
        print(f"\n$ unspool {shown}", flush=True)
        status = subprocess.call([sys.executable, "-m", "unspool", *command])
        if status:
            return status
    print(f"\nThe flame graph: {page.resolve().as_uri()}")
    return 0


if __name__ == "__main__":
    if sys.argv[1:] == ["work"]:
        work()
    else:
        sys.exit(main())
