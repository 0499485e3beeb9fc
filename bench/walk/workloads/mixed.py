"""Works for so many seconds: arrays, JSON, regular expressions, a database, calls in calls.

mixed.py SECONDS
"""

import json
import re
import sqlite3
import sys
import time

import numpy as np

random = np.random.default_rng(1)
text = json.dumps([{"name": f"n{i}", "values": [i, i * 2.5, str(i)]} for i in range(200)])
database = sqlite3.connect(":memory:")
database.execute("create table t(a integer, b text, c real)")


def descend(levels: int) -> int:
    return levels if levels == 0 else descend(levels - 1) + 1


def arrays() -> None:
    a = random.random((120, 120))
    b = a @ a
    np.linalg.svd(b[:60, :60])
    np.sort(a.ravel())
    np.exp(a).sum()


def rows() -> None:
    database.executemany("insert into t values(?, ?, ?)", ((i, f"x{i % 17}", i * 0.5) for i in range(300)))
    database.execute("select b, count(*), avg(c) from t group by b order by 2 desc").fetchall()
    database.execute("delete from t")


end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    arrays()
    data = json.loads(text)
    json.dumps(data)
    re.findall(r"(n\d+)[^}]*?(\d+\.\d)", text)
    rows()
    sorted(data, key=lambda one: descend(5) or one["name"])
