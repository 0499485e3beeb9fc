"""What `unspool stack --debuginfod` says of downloads."""

import pytest

from unspool.cli.downloads import Downloads
from unspool.symbols import Progress

URL = "http://127.0.0.1/buildid/00/debuginfo"


def test_a_download_is_told_once_with_its_size(capsys: pytest.CaptureFixture[str]) -> None:
    """Where standard error is no terminal."""
    tell = Downloads()
    for received in (0, 1_000_000, 2_500_000):
        tell(Progress(URL, received, 2_500_000))
    assert capsys.readouterr().err == f"downloading {URL}, 2.5 MB\n"


def test_a_server_need_not_say_the_size(capsys: pytest.CaptureFixture[str]) -> None:
    Downloads()(Progress(URL, 10, None))
    assert capsys.readouterr().err == f"downloading {URL}, of unknown size\n"


def test_on_a_terminal_it_says_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    tell = Downloads()
    tell(Progress(URL, 1_000_000, 2_000_000))
    tell(Progress(URL, 2_000_000, 2_000_000))
    lines = capsys.readouterr().err.split("\r")
    assert "1.0 MB, 2.0 MB in all" in lines[1] and not lines[1].endswith("\n")
    assert "2.0 MB, 2.0 MB in all" in lines[2] and lines[2].endswith("\n")
