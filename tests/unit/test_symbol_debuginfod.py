"""Downloads from a debuginfod server, here one of our own on 127.0.0.1 that also misbehaves."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.compilers import run
from tests.unit.test_symbol_debug_files import Split
from unspool import Binary
from unspool.symbols import Progress, Symbolizer, debuginfod
from unspool.symbols.debuginfod import DownloadError, fetch

Answer = Callable[[BaseHTTPRequestHandler], None]
BUILD_ID = bytes(range(20))


class Server:
    """What it is asked for, and how it answers."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.answer: Answer = lambda handler: handler.send_error(404)
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.paths.append(self.path)
                server.answer(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    server = Server()
    monkeypatch.setenv("DEBUGINFOD_URLS", server.url)
    yield server
    server.close()


def content(data: bytes, declared: int | None = None) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        if declared != -1:
            handler.send_header("Content-Length", str(len(data) if declared is None else declared))
        handler.end_headers()
        handler.wfile.write(data)

    return answer


def redirect(url: str) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(302)
        handler.send_header("Location", url)
        handler.end_headers()

    return answer


def test_a_file_and_its_progress(server: Server) -> None:
    data = bytes(200_000)
    server.answer = content(data)
    output, seen = io.BytesIO(), list[Progress]()
    url = fetch(BUILD_ID, output, seen.append)
    assert output.getvalue() == data
    assert server.paths == [f"/buildid/{BUILD_ID.hex()}/debuginfo"]
    assert seen[-1] == Progress(url, len(data), len(data))
    assert [p.received for p in seen] == sorted({p.received for p in seen})


def test_a_size_that_is_not_declared(server: Server) -> None:
    server.answer = content(b"abc", declared=-1)
    output = io.BytesIO()
    fetch(BUILD_ID, output)
    assert output.getvalue() == b"abc"


def test_servers_are_asked_in_turn(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Server()
    try:
        monkeypatch.setenv("DEBUGINFOD_URLS", f"{other.url}/  {server.url}")
        server.answer = content(b"abc")
        assert fetch(BUILD_ID, io.BytesIO()).startswith(server.url)
        assert len(other.paths) == 1
    finally:
        other.close()


def test_no_server_has_it(server: Server) -> None:
    with pytest.raises(DownloadError, match="404") as caught:
        fetch(BUILD_ID, io.BytesIO())
    assert caught.value.missing


@pytest.mark.parametrize("urls", ["", "  "])
def test_no_server_is_named(monkeypatch: pytest.MonkeyPatch, urls: str) -> None:
    monkeypatch.setenv("DEBUGINFOD_URLS", urls)
    with pytest.raises(DownloadError, match="set DEBUGINFOD_URLS"):
        fetch(BUILD_ID, io.BytesIO())


@pytest.mark.parametrize(
    "url", ["file:///etc", "ftp://127.0.0.1/", "nonsense", "http://", "http://127.0.0.1:1"]
)
def test_a_server_that_cant_be_asked(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("DEBUGINFOD_URLS", url)
    with pytest.raises(DownloadError) as caught:
        fetch(BUILD_ID, io.BytesIO())
    assert not caught.value.missing


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/x"])
def test_a_redirection_elsewhere_is_not_followed(server: Server, url: str) -> None:
    server.answer = redirect(url)
    output = io.BytesIO()
    with pytest.raises(DownloadError):
        fetch(BUILD_ID, output)
    assert output.getvalue() == b""


def test_a_redirection_is_followed(server: Server) -> None:
    other = Server()
    try:
        other.answer = content(b"abc")
        server.answer = redirect(f"{other.url}/elsewhere")
        output = io.BytesIO()
        fetch(BUILD_ID, output)
        assert output.getvalue() == b"abc"
    finally:
        other.close()


@pytest.mark.parametrize("declared", [None, -1])
def test_a_file_that_is_too_large(server: Server, declared: int | None) -> None:
    server.answer = content(bytes(3 << 20), declared)
    output = io.BytesIO()
    with pytest.raises(DownloadError, match="more than 1 MiB"):
        fetch(BUILD_ID, output, max_bytes=1 << 20)
    assert output.getvalue() == b""


def test_a_download_that_is_cut_short(server: Server) -> None:
    server.answer = content(b"abc", declared=100)
    output = io.BytesIO()
    with pytest.raises(DownloadError):
        fetch(BUILD_ID, output)
    assert output.getvalue() == b""


def test_a_server_that_falls_silent(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    server.answer = lambda handler: (released.wait(20), None)[1]
    monkeypatch.setattr(debuginfod, "_STALL_SECONDS", 0.2)
    with pytest.raises(DownloadError, match="timed out"):
        fetch(BUILD_ID, io.BytesIO())
    released.set()


def test_a_server_that_is_too_slow(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def trickle(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            for _ in range(200):
                handler.wfile.write(b"x")
                handler.wfile.flush()
                threading.Event().wait(0.02)
        except OSError:
            pass

    server.answer = trickle
    monkeypatch.setattr(debuginfod, "_MIN_SECONDS", 0.2)
    with pytest.raises(DownloadError, match="too slow"):
        fetch(BUILD_ID, io.BytesIO())


# ---------------------------------------------------------------- through the symbolizer


@pytest.fixture
def split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Split:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    split = Split(tmp_path)
    split.moved(tmp_path / "away" / "file")
    return split


def outer_of(tmp_path: Path) -> int:
    with Binary.open(tmp_path / "whole") as whole:
        symbols = whole.symbols
        address = next(int(symbols.address[i]) for i in range(len(symbols)) if symbols.name(i) == "outer")
        return address - whole.image_address


def test_nothing_is_asked_unless_the_user_wants_it(server: Server, split: Split, tmp_path: Path) -> None:
    with Binary.open(split.program) as binary:
        assert Symbolizer(cache=False).lookup(binary, outer_of(tmp_path)) == ()
    assert server.paths == []


@pytest.mark.parametrize("cache", [True, False])
def test_a_download_gives_lines_and_is_kept(
    server: Server, split: Split, tmp_path: Path, cache: bool
) -> None:
    server.answer = content((tmp_path / "away" / "file").read_bytes())
    outer = outer_of(tmp_path)
    for time in range(3):
        with Binary.open(split.program) as binary:
            symbolizer = Symbolizer(debuginfod=True, cache=cache)
            assert [place.function for place in symbolizer.lookup(binary, outer)] == ["inner", "outer"]
            assert not symbolizer.findings(binary).notes
        assert len(server.paths) == (1 if cache else time + 1)


def test_a_miss_is_remembered(server: Server, split: Split) -> None:
    for _ in range(2):
        with Binary.open(split.program) as binary:
            notes = Symbolizer(debuginfod=True).findings(binary).notes
            assert any("no debug file from debuginfod" in note.what for note in notes)
    assert len(server.paths) == 1


def test_another_file_than_was_asked_for_is_not_used(server: Server, split: Split, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    server.answer = content(Split(other, "-O1").debug.read_bytes())
    with Binary.open(split.program) as binary:
        symbolizer = Symbolizer(debuginfod=True)
        assert symbolizer.lookup(binary, outer_of(tmp_path)) == ()
        assert any("another build id" in note.what for note in symbolizer.findings(binary).notes)
    assert not list((tmp_path / "cache").rglob("debuginfod-1/*"))


def test_garbage_is_not_used(server: Server, split: Split, tmp_path: Path) -> None:
    server.answer = content(b"\x7fELF garbage")
    with Binary.open(split.program) as binary:
        symbolizer = Symbolizer(debuginfod=True)
        assert symbolizer.lookup(binary, outer_of(tmp_path)) == ()
        assert any("no debug file from debuginfod" in note.what for note in symbolizer.findings(binary).notes)


def test_a_binary_without_a_build_id(server: Server, tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    split = Split(tmp_path / "x", "-Wl,--build-id=none")
    split.debug.unlink()
    run("objcopy", "--remove-section=.gnu_debuglink", split.program)
    with Binary.open(split.program) as binary:
        notes = Symbolizer(debuginfod=True, cache=False).findings(binary).notes
        assert any("no build id" in note.what for note in notes)
    assert server.paths == []
