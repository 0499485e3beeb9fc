"""The programs that program_proof.py records: how each is built, started, loaded and ended.

Servers run on loopback with data in a folder of their own. Only the server is recorded, not what loads it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.proof.stack_targets import POSTGRES, free_port, nginx_configuration, until, until_it_answers

WORKLOADS = Path(__file__).parent.parent / "oracle" / "workloads"
OWN_PROGRAMS = Path(__file__).parent / "programs"
# What another user's process needs to open the memory of unspool's, which runs as root.
SEES_MEMORY = "+sys_ptrace,+dac_read_search"


@dataclass(frozen=True)
class Ready:
    """A program that can be recorded. Without load it ends by itself; else load runs while it does, and then
    it is sent a signal."""

    command: Sequence[str]
    load: Callable[[], None] | None = None
    end: signal.Signals = signal.SIGTERM


@dataclass(frozen=True)
class RealProgram:
    """prepare: from an empty folder and the number of seconds to run. via: of `unspool record`."""

    name: str
    prepare: Callable[[Path, int], Ready]
    via: str = "in-process"


def all_programs() -> list[RealProgram]:
    return [
        RealProgram("python3 of the system", partial(_python, "/usr/bin/python3", "interpreter.py", 12000)),
        RealProgram("python3 and numpy", partial(_python, sys.executable, "arrays.py", 8000)),
        RealProgram("PostgreSQL under pgbench", _postgresql),
        RealProgram("redis-server under redis-benchmark", _redis),
        RealProgram("nginx under wrk", _nginx),
        RealProgram("node", _node),
        RealProgram("xz", _xz),
        RealProgram("openssl speed", _openssl),
        RealProgram("Rust", _rust),
        RealProgram("C++, no frame pointers", partial(_cpp, OWN_PROGRAMS / "words.cpp", 6000)),
        RealProgram("C++ that throws all the time", partial(_cpp, WORKLOADS / "table.cpp", 15000)),
        RealProgram("xz, by perf events", _xz, "perf"),
        RealProgram(
            "python3 and numpy, by perf events", partial(_python, sys.executable, "arrays.py", 8000), "perf"
        ),
        RealProgram("node, by perf events", _node, "perf"),
    ]


def _python(python: str, source: str, rounds: int, folder: Path, seconds: int) -> Ready:
    return Ready([python, str(WORKLOADS / source), str(rounds * seconds)])


def _postgresql(folder: Path, seconds: int) -> Ready:
    """It refuses to run as root. Then it is another user's, and may see unspool's memory by a capability."""
    programs = sorted(POSTGRES.glob("*/bin"))[-1]
    data, query, port = folder / "data", folder.parent / "query.sql", free_port()
    as_user: list[str] = []
    if os.geteuid() == 0:
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        shutil.chown(folder, "postgres", "postgres")
    initdb = [*as_user, str(programs / "initdb"), "-D", str(data), "-A", "trust", "-U", "tester", "-N"]
    subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, cwd=folder)
    if as_user:
        as_user += [f"--inh-caps={SEES_MEMORY}", f"--ambient-caps={SEES_MEMORY}"]
    options = ["-D", str(data), "-p", str(port), "-k", str(folder), "-h", "127.0.0.1"]
    options += ["-c", "max_parallel_workers_per_gather=0"]  # a process for each query would be recorded late

    def load() -> None:
        connection = ["-h", "127.0.0.1", "-p", str(port), "-U", "tester"]
        ready = [str(programs / "psql"), *connection, "-qc", "select 1", "postgres"]
        until(lambda: subprocess.run(ready, capture_output=True, check=False).returncode == 0)
        bench = [str(programs / "pgbench"), *connection]
        _run([*bench, "-i", "-s", "2", "-q", "postgres"])
        query.write_text("select sum(abalance) from pgbench_accounts where aid % 3 = 0;\n")
        _run([*bench, "-b", "select-only@9", "-f", f"{query}@1", "-c", "4", "-T", str(seconds), "postgres"])

    return Ready([*as_user, str(programs / "postgres"), *options], load, signal.SIGINT)


def _redis(folder: Path, seconds: int) -> Ready:
    port = free_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]

    def load() -> None:
        until_it_answers(port)
        bench = ["redis-benchmark", "-p", str(port), "-l", "-q", "-c", "20", "-P", "8"]
        _run([*bench, "-t", "set,get,lpush,zadd,lrange_600"], seconds)

    return Ready(command, load)


def _nginx(folder: Path, seconds: int) -> Ready:
    port = free_port()
    configuration = nginx_configuration(folder, port)

    def load() -> None:
        until_it_answers(port)
        address = f"http://127.0.0.1:{port}/page.html"
        _run(["wrk", "-t1", "-c8", f"-d{seconds}s", "-H", "Accept-Encoding: gzip", address])

    return Ready(["nginx", "-e", f"{folder}/error.log", "-c", str(configuration)], load)


def _node(folder: Path, seconds: int) -> Ready:
    source = folder / "workload.js"
    text = (OWN_PROGRAMS / "workload.js").read_text()
    source.write_text(text + f"\nsetTimeout(() => process.exit(0), {seconds * 1000});\n")
    return Ready(["node", str(source)])


def _xz(folder: Path, seconds: int) -> Ready:
    data = folder / "data"
    data.write_bytes(Path(shutil.which("node") or sys.executable).read_bytes()[: seconds << 20])
    return Ready(["xz", "-9", "-T1", "-k", str(data)])


def _openssl(folder: Path, seconds: int) -> Ready:
    kinds = ["sha256", "aes-256-cbc", "rsa2048", "ecdsap256", "ed25519"]
    return Ready(["openssl", "speed", "-mr", "-seconds", "1", "-bytes", "4096", *kinds])


def _rust(folder: Path, seconds: int) -> Ready:
    program = folder / "words"
    _run(["rustc", "--edition=2021", "-O", "-o", str(program), str(OWN_PROGRAMS / "words.rs")])
    return Ready([str(program), str(12000 * seconds)])


def _cpp(source: Path, rounds: int, folder: Path, seconds: int) -> Ready:
    program = folder / source.stem
    options = ["-std=c++17", "-O2", "-fomit-frame-pointer", "-pthread"]
    _run(["g++", *options, "-o", str(program), str(source)])
    return Ready([str(program), str(rounds * seconds)])


def _run(command: Sequence[str], seconds: int | None = None) -> None:
    """To its end, or for so many seconds."""
    try:
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        assert seconds is not None
