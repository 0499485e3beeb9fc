"""Where `unspool record` writes: what can't be written is refused before the program runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from unspool.cli.record_output import Output
from unspool.export import ExportError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("path", "format_", "words"),
    [
        ("run.txt", None, "its suffix stands for no format"),
        ("there.unspool", None, "it is there already"),
        ("no folder/run.html", None, "there is no folder no folder: mkdir -p 'no folder'"),
        (".", None, "this is a folder: give a file name"),
        (".", "html", "this is a folder: give a file name"),
        ("-", None, "standard output belongs to the program"),
        ("-", "collapsed", "standard output belongs to the program"),
    ],
)
def test_what_is_no_place_for_a_recording(path: str, format_: str | None, words: str) -> None:
    Path("there.unspool").touch()
    with pytest.raises(ExportError, match=words):
        Output.of(path, format_)


@pytest.mark.parametrize("path", ["/proc/x.unspool", "/proc/x.html", "/sys/kernel/x.unspool"])
def test_a_folder_that_can_not_hold_files(path: str) -> None:
    """Rights say nothing there."""
    folder = Path(path).parent
    with pytest.raises(
        ExportError, match=rf"^{folder}: no files can be made here \(.+\): choose another folder"
    ):
        Output.of(path, None)


def test_a_current_folder_that_can_not_hold_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/proc")
    with pytest.raises(ExportError, match=r"^/proc: no files can be made here"):
        Output.of(None, None)


@pytest.mark.parametrize("path", [None, "run.unspool", "run.html"])
def test_nothing_is_left_of_the_check(path: str | None, folder: Path) -> None:
    Output.of(path, None)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("left", ["run.unspool-wal", "run.unspool-journal"])
def test_what_is_left_of_another_recording(left: str) -> None:
    Path(left).touch()
    with pytest.raises(ExportError, match=f"{left}: it is there already: choose another name"):
        Output.of("run.unspool", None)


def test_a_name_that_leaves_no_room_for_the_log_beside_it() -> None:
    with pytest.raises(ExportError, match="File name too long: choose another name"):
        Output.of("x" * 245 + ".unspool", None)


def test_a_link_to_nothing_is_taken() -> None:
    Path("run.unspool").symlink_to("nothing")
    with pytest.raises(ExportError, match="it is there already"):
        Output.of("run.unspool", None)
