"""The programs whose stacks are compared: each is started on loopback with data in a folder of its own, is
loaded a little, and is ended afterwards."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
POSTGRES = Path("/usr/lib/postgresql")
SECONDS = 30  # until a server answers


@dataclass(frozen=True)
class Target:
    """start: a context that yields the ids of the processes to look at. needs: what must exist (commands or
    paths), and the Debian package that brings it."""

    name: str
    package: str
    needs: tuple[str, ...]
    start: Callable[[Path], contextmanager[list[int]]]  # type: ignore[type-arg]

    @property
    def missing(self) -> list[str]:
        return [need for need in self.needs if not (shutil.which(need) or Path(need).exists())]


def all_targets() -> list[Target]:
    pythons = {"python of the system": "/usr/bin/python3"}
    for version in ("3.12", "3.13"):
        for path in sorted(PYENV.glob(f"{version}.*/bin/python{version}"))[-1:]:
            pythons[f"python {version}"] = str(path)
    targets = [
        Target(name, "python3-dbg", (path,), _program(path, str(PROGRAMS / "workload.py")))
        for name, path in pythons.items()
    ]
    postgres = sorted(POSTGRES.glob("*/bin"))[-1] if POSTGRES.exists() else POSTGRES / "bin"
    java = str(PROGRAMS / "Workload.java")
    return [
        *targets,
        Target("postgresql", "postgresql", (str(postgres / "initdb"), "setpriv"), _postgresql(postgres)),
        Target("redis", "redis-server", ("redis-server", "redis-benchmark"), _redis),
        Target("nginx", "nginx-light", ("nginx",), _nginx),
        Target("node", "nodejs", ("node",), _program("node", str(PROGRAMS / "workload.js"))),
        Target("jvm", "default-jdk-headless", ("java",), _program("java", java)),
        Target(
            "jvm, frame pointers",
            "default-jdk-headless",
            ("java",),
            _program("java", "-XX:+PreserveFramePointer", java),
        ),
    ]


def _program(*command: str) -> Callable[[Path], contextmanager[list[int]]]:  # type: ignore[type-arg]
    """One process that says "ready"."""

    @contextmanager
    def start(folder: Path) -> Iterator[list[int]]:
        with _running(*command, cwd=folder, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line == b"ready\n", f"{command[0]} said {line!r}"
            yield [process.pid]

    return start


def _postgresql(programs: Path) -> Callable[[Path], contextmanager[list[int]]]:  # type: ignore[type-arg]
    @contextmanager
    def start(folder: Path) -> Iterator[list[int]]:
        """A server with its background processes, and sessions that compute, sleep and wait for a lock."""
        as_user: list[str] = []
        if os.geteuid() == 0:  # it refuses to run as root
            as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
            shutil.chown(folder, "postgres", "postgres")
            for parent in (folder.parent, *folder.parent.parents):
                if parent.owner() == "root" and parent.stat().st_mode & 0o1 == 0:
                    parent.chmod(parent.stat().st_mode | 0o1)
        data, port = folder / "data", free_port()
        command = [*as_user, str(programs / "initdb"), "-D", str(data), "-A", "trust", "-U", "tester", "-N"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder)
        options = ["-D", str(data), "-p", str(port), "-k", str(folder), "-h", "127.0.0.1"]
        with ExitStack() as stack:
            server = stack.enter_context(
                _running(
                    *as_user,
                    str(programs / "postgres"),
                    *options,
                    end=signal.SIGQUIT,  # at once, with all sessions
                    cwd=folder,
                    stderr=subprocess.DEVNULL,
                )
            )
            until_it_answers(port)
            psql = [str(programs / "psql"), "-h", "127.0.0.1", "-p", str(port), "-U", "tester", "postgres"]
            until(lambda: subprocess.run([*psql, "-qc", "select 1"], capture_output=True).returncode == 0)
            sum_up = (
                "select sum(a.i * b.i) from generate_series(1, 3000) a(i), generate_series(1, 300000) b(i)"
            )
            join = "select count(*) from pg_class a, pg_class b, pg_class c where a.relname like b.relname"
            sessions = [
                "select pg_advisory_lock(1); select pg_sleep(1000)",
                "select pg_sleep(0.3); select pg_advisory_lock(1)",
                sum_up,
                join,
            ]
            for session in sessions:
                stack.enter_context(_running(*psql, "-qc", session, stdout=subprocess.DEVNULL))
            time.sleep(1.5)
            yield [server.pid, *_children(server.pid)]

    return start


@contextmanager
def _redis(folder: Path) -> Iterator[list[int]]:
    port = free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    with _running("redis-server", *options, "--io-threads", "2", stdout=subprocess.DEVNULL) as server:
        until_it_answers(port)
        load = ["redis-benchmark", "-p", str(port), "-l", "-q", "-c", "5", "-t", "set,lpush,zadd,lrange_600"]
        with _running(*load, stdout=subprocess.DEVNULL):
            time.sleep(0.5)
            yield [server.pid]


@contextmanager
def _nginx(folder: Path) -> Iterator[list[int]]:
    port = free_port()
    configuration = nginx_configuration(folder, port)
    with _running("nginx", "-e", f"{folder}/error.log", "-c", str(configuration)) as server:
        until_it_answers(port)
        with _requests(port, "/page.html"):
            time.sleep(0.5)
            yield [server.pid, *_children(server.pid)]


def nginx_configuration(folder: Path, port: int) -> Path:
    """Two workers that compress a page of text."""
    configuration = folder / "nginx.conf"
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    configuration.write_text(
        f"daemon off; worker_processes 2; pid {folder}/pid; error_log {folder}/error.log;"
        "events { worker_connections 64; }"
        f"http {{ access_log off; {temporary} gzip on; gzip_min_length 1; gzip_comp_level 9;"
        f" server {{ listen 127.0.0.1:{port}; root {folder}; autoindex on; }} }}"
    )
    (folder / "page.html").write_text("<p>some text</p>\n" * 20000)
    folder.chmod(0o755)
    return configuration


@contextmanager
def _requests(port: int, path: str) -> Iterator[None]:
    """Asks for a page over and over again."""
    ended = threading.Event()

    def ask() -> None:
        while not ended.is_set():
            with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as client:
                client.sendall(f"GET {path} HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n".encode())
                client.settimeout(0.2)
                try:
                    while client.recv(1 << 16):
                        continue
                except TimeoutError:  # the server stands still while it is looked at
                    continue

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


@contextmanager
def _running(
    *command: str, end: signal.Signals = signal.SIGTERM, **options: object
) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, **options)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.send_signal(end)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def until_it_answers(port: int) -> None:
    def answers() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            return False
        return True

    until(answers)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the server does not answer"
        time.sleep(0.1)
