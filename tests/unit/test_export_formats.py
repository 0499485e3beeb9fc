"""export.write and the commands that use it: formats by name and suffix, what happens to the file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.profile_maker import ProfileMaker
from tests.recordings import Recording
from unspool.capture.samples import Event
from unspool.cli import unspool
from unspool.export import FORMATS, ExportError, format_of, write
from unspool.profile import Profile


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    made = Recording(tmp_path / "run.unspool")
    made.sample(["work", "main"], weight=3)
    made.finish()
    return made.path


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("out.html", "html"),
        ("out.pb.gz", "pprof"),
        ("a.b/OUT.COLLAPSED", "collapsed"),
        ("out.unspool", "unspool"),
        ("out.gz", None),
        ("html", None),
        ("", None),
    ],
)
def test_a_suffix_stands_for_a_format(name: str, format: str | None) -> None:
    assert format_of(name) == format


@pytest.mark.parametrize("format", FORMATS)
def test_each_format_is_written_by_its_suffix_and_by_its_name(
    format: str, recording: Path, tmp_path: Path
) -> None:
    profile = Profile.open(str(recording))
    by_suffix, by_name = tmp_path / f"by_suffix{FORMATS[format].suffix}", tmp_path / "by_name"
    write(profile, by_suffix)
    write(profile, by_name, format)
    assert by_suffix.read_bytes() == by_name.read_bytes() != b""


def test_a_recording_that_is_copied_is_the_same_recording(recording: Path, tmp_path: Path) -> None:
    write(Profile.open(str(recording)), tmp_path / "copy.unspool")
    copy, original = Profile.open(str(tmp_path / "copy.unspool")), Profile.open(str(recording))
    assert copy.functions == original.functions
    assert copy.meta == original.meta
    assert copy.sample_weight.tolist() == original.sample_weight.tolist() == [3]
    assert copy.is_finished


def test_an_unknown_suffix_or_format_says_which_there_are(recording: Path, tmp_path: Path) -> None:
    profile = Profile.open(str(recording))
    with pytest.raises(ExportError, match=r"out.svg: its suffix stands for no format: .*\.pb\.gz"):
        write(profile, tmp_path / "out.svg")
    with pytest.raises(ExportError, match="no such format: svg"):
        write(profile, tmp_path / "out.html", "svg")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.unspool"]


def test_what_was_in_the_file_is_replaced_and_its_link_stays(recording: Path, tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link.collapsed"
    target.write_text("what was there before, and longer than what comes")
    link.symlink_to(target)
    write(Profile.open(str(recording)), link)
    assert link.is_symlink()
    assert target.read_text().endswith("main;work 3\n")


def test_a_recording_is_never_replaced(recording: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.unspool"
    other.write_text("mine")
    for path in (other, recording):
        with pytest.raises(ExportError, match=f"{path.name}: it is there already: choose another name"):
            write(Profile.open(str(recording)), path)
    assert other.read_text() == "mine"


def test_what_is_no_ordinary_file_is_written_to_and_not_replaced(recording: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write(Profile.open(str(recording)), pipe, "collapsed")
        assert os.read(reader, 100).endswith(b"main;work 3\n")
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_a_failure_leaves_what_was_there_and_nothing_else(recording: Path, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="No such file or directory"):
        write(Profile.open(str(recording)), tmp_path / "none" / "out.html")
    (tmp_path / "out.html").mkdir()
    with pytest.raises(ExportError, match="Is a directory"):
        write(Profile.open(str(recording)), tmp_path / "out.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.html", "run.unspool"]


def test_a_new_file_has_the_rights_that_the_umask_leaves(recording: Path, tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write(Profile.open(str(recording)), tmp_path / "out.html")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "out.html").stat().st_mode) == 0o640


def test_a_format_for_one_event_wants_to_know_which(tmp_path: Path) -> None:
    maker = ProfileMaker(events=[Event("cpu", "nanoseconds"), Event("faults", "count")])
    thread = maker.thread("t")
    maker.sample(thread, "main@app", weight=9)
    maker.sample(thread, "main@app", weight=4, event=1)
    profile, out = maker.profile(), tmp_path / "out.collapsed"
    with pytest.raises(ExportError, match="choose one of cpu, faults"):
        write(profile, out)
    with pytest.raises(ExportError, match="no event heap: its events are cpu, faults"):
        write(profile, out, event="heap")
    write(profile, out, event="faults")
    assert out.read_text() == "t;main 4\n"
    write(profile, tmp_path / "out.html")  # holds all


def run(*arguments: object, **environment: str | None) -> tuple[int, str, str]:
    result = CliRunner().invoke(unspool, [str(argument) for argument in arguments], env=environment)
    return result.exit_code, result.stdout, result.stderr


def test_export_writes_to_a_file_and_to_standard_output(recording: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.collapsed"
    code, text, said = run("export", recording, "-o", out)
    assert (code, text, said) == (0, "", f"written to {out} ({len(out.read_bytes())} bytes)\n")
    code, text, _ = run("export", recording, "-f", "collapsed", "-o", "-")
    assert (code, text) == (0, out.read_text())
    assert text.endswith(";main;work 3\n")


def test_export_says_what_is_wrong(recording: Path, tmp_path: Path) -> None:
    code, _, said = run("export", tmp_path / "none.unspool", "-o", tmp_path / "out.html")
    assert code == 1 and "none.unspool: No such file or directory" in said
    code, _, said = run("export", recording, "-o", tmp_path / "out")
    assert code == 1 and "its suffix stands for no format: give one of html, pprof" in said


def test_export_help_names_the_formats() -> None:
    _, text, _ = run("export", "--help")
    for format, facts in FORMATS.items():
        assert f"{format:10} {facts.what} ({facts.suffix})" in text


def test_view_prints_the_path_where_there_is_no_display(recording: Path, tmp_path: Path) -> None:
    nothing: dict[str, str | None] = {"DISPLAY": None, "WAYLAND_DISPLAY": None, "BROWSER": None}
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    code, printed, said = run("view", recording, **nothing, **cache)
    path = Path(printed.strip())
    assert (code, said) == (0, "there is no display here: open this file in a browser\n")
    assert path.suffix == ".html" and path.is_relative_to(tmp_path / "cache") and path.stat().st_size > 10_000
    assert run("view", recording, **nothing, **cache)[1] == printed  # the same again, not one more


def test_view_opens_the_browser(recording: Path, tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    browser.chmod(0o755)
    code, printed, said = run("view", recording, BROWSER=str(browser), XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert (code, said) == (0, "")
    assert (tmp_path / "opened").read_text().strip() == Path(printed.strip()).as_uri()


def test_view_goes_to_a_temporary_folder_where_there_is_no_cache(recording: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, printed, _ = run(
        "view",
        recording,
        DISPLAY=None,
        WAYLAND_DISPLAY=None,
        BROWSER=None,
        XDG_CACHE_HOME=str(tmp_path / "file"),
    )
    path = Path(printed.strip())
    assert code == 0 and path.name.startswith("run-") and not path.is_relative_to(tmp_path / "file")
    path.unlink()
    path.parent.rmdir()
