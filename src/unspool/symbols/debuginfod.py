"""Fetches debug files by build id from debuginfod servers, only ever because the user asked for it.

Servers: $DEBUGINFOD_URLS, separated by spaces. Protocol: GET URL/buildid/HEX/debuginfo ("debuginfod(8)").
What a server sends is not trusted: its size is bounded, its speed must not fall below a minimum, and the
file is checked as any other debug file is.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from http.client import HTTPResponse
    from urllib.request import OpenerDirector

MAX_BYTES = 1 << 30
_STALL_SECONDS = 30  # without a byte
_MIN_BYTES, _MIN_SECONDS = 100 << 10, 90  # elfutils' own limit: at least 100 KiB in 90 s
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Progress:
    """A download: bytes so far, and of how many (None: the server did not say)."""

    url: str
    received: int
    total: int | None


class DownloadError(Exception):
    """No server has the file (`missing`), or it can't be fetched; says why."""

    def __init__(self, what: str, missing: bool = False) -> None:
        super().__init__(what)
        self.missing = missing


def servers() -> list[str]:
    """The servers' URLs, in the order in which they are asked."""
    return os.environ.get("DEBUGINFOD_URLS", "").split()


def fetch(
    build_id: bytes,
    output: IO[bytes],
    progress: Callable[[Progress], None] | None = None,
    max_bytes: int = MAX_BYTES,
) -> str:
    """Writes the debug file to `output` (empty, seekable) and returns its URL. Raises DownloadError."""
    urls = servers()
    if not urls:
        raise DownloadError("no debuginfod server is named: set DEBUGINFOD_URLS")
    problems: list[DownloadError] = []
    for server in urls:
        url = f"{server.rstrip('/')}/buildid/{build_id.hex()}/debuginfo"
        try:
            _fetch_from(url, output, progress, max_bytes)
        except DownloadError as problem:
            problems.append(problem)
            output.seek(0)
            output.truncate()
            continue
        return url
    raise DownloadError("; ".join(map(str, problems)), all(problem.missing for problem in problems))


def _fetch_from(
    url: str, output: IO[bytes], progress: Callable[[Progress], None] | None, max_bytes: int
) -> None:
    import urllib.error  # here, because most runs download nothing
    import urllib.request
    from http.client import HTTPException

    if not url.startswith(("http://", "https://")):
        raise DownloadError(f"{url}: only http and https are supported")
    request = urllib.request.Request(url, headers={"User-Agent": "unspool", "Accept-Encoding": "identity"})
    try:
        with _opener().open(request, timeout=_STALL_SECONDS) as response:
            _copy(url, response, output, progress, max_bytes)
    except urllib.error.HTTPError as error:
        error.close()
        raise DownloadError(f"{url}: {error.code} {error.reason}", missing=error.code == 404) from None
    except (urllib.error.URLError, HTTPException, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise DownloadError(f"{url}: {reason or type(error).__name__}") from None


def _opener() -> OpenerDirector:
    """HTTP and HTTPS, also after a redirection, through the user's proxies."""
    import urllib.request

    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    return opener


def _copy(
    url: str,
    response: HTTPResponse,
    output: IO[bytes],
    progress: Callable[[Progress], None] | None,
    max_bytes: int,
) -> None:
    length = response.headers.get("Content-Length", "")
    total = int(length) if length.isdecimal() and len(length) < 19 else None
    if total is not None and total > max_bytes:
        raise DownloadError(f"{url}: {total >> 20} MiB, more than {max_bytes >> 20} MiB")
    received, start = 0, time.monotonic()
    while chunk := response.read1(_CHUNK):
        received += len(chunk)
        if received > max_bytes:
            raise DownloadError(f"{url}: more than {max_bytes >> 20} MiB")
        output.write(chunk)
        if progress is not None:
            progress(Progress(url, received, total))
        seconds = time.monotonic() - start
        if seconds > _MIN_SECONDS and received < _MIN_BYTES * seconds / _MIN_SECONDS:
            raise DownloadError(f"{url}: too slow ({received >> 10} KiB in {seconds:.0f} s)")
    if total is not None and received != total:
        raise DownloadError(f"{url}: ended after {received} of {total} bytes")
    output.flush()
