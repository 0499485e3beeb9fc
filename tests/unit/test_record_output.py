"""Where `unspool record` writes: what can't be written is refused before the program runs."""

from __future__ import annotations

import os
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


@pytest.mark.parametrize("path", [None, "run.unspool", "run.html"])
def test_a_folder_that_may_not_be_written(
    path: str | None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Output.of(path, None)
    monkeypatch.setattr(os, "access", lambda asked, mode: Path(asked).absolute() != folder)
    with pytest.raises(ExportError, match=f"{folder}: no files can be made here: choose another folder"):
        Output.of(path, None)
