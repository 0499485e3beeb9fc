"""How what other unwinders say is judged and put into docs/exactness.md. None of them is run here."""

import json
from pathlib import Path

import pytest

from tests.oracle import document
from tests.oracle.peers.__main__ import parse, verdict

SAID = "frame 0x10\nframe 0x20\nend complete\n"


@pytest.mark.parametrize(
    ("text", "truth", "expected"),
    [
        (SAID, [0x10, 0x20], "exact"),
        (SAID, [0x10, 0x20, 0x30], "cut_and_complete"),
        (SAID, [0x10, 0x30], "wrong_and_complete"),
        (SAID.replace("complete", "error"), [0x10, 0x20], "right_not_complete"),
        (SAID.replace("complete", "error"), [0x10, 0x20, 0x30], "cut"),
        (SAID.replace("complete", "error"), [0x10, 0x30], "wrong"),
        (SAID, [0x10], "wrong_and_complete"),
        ("", [0x10], "cut"),
    ],
)
def test_a_verdict_needs_the_frames_and_the_end(text: str, truth: list[int], expected: str) -> None:
    assert verdict(parse(text), truth) == expected


def test_the_part_is_replaced_and_names_what_is_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {
        "core": "abc of today",
        "absent": {"framehop": "there is no cargo"},
        "programs": {"one": {"gdb": {"exact": 2, "cut": 1}}, "two": {"gdb": {"exact": 3}}},
    }
    file, page = tmp_path / "peers.json", tmp_path / "page.md"
    file.write_text(json.dumps(found))
    page.write_text("# Page\n\n## Beside others\n\nold\n\n## Limits\n\n* kept\n")
    monkeypatch.setattr(document, "DOCUMENT", page)
    document.put_peers(file)
    text = page.read_text()
    assert text.startswith("# Page\n\n## Beside others\n\nSteps at random of 2 of the programs")
    assert text.endswith("\n| two | 3 of 3 |\n\n## Limits\n\n* kept\n")
    assert "\nframehop is not compared: there is no cargo.\n" in text
    assert "\n| gdb | 6 | 5 | 0 | 1 | 0 | 0 | 0 |\n" in text
    assert "| one | 2 of 3 |" in text
    assert "old" not in text
