"""Names of functions that fit a terminal."""

from __future__ import annotations

import click
import pytest

from tests.short_names import NAMES
from unspool import Frame, How, Location, LookupAddress
from unspool.cli import stack_text
from unspool.cli.short_names import short_name, shorter_names
from unspool.cli.stack_frames import Line
from unspool.cli.stack_text import Widths


@pytest.mark.parametrize("name", NAMES)
def test_names_are_shortened_to_what_still_says_which_function_it_is(name: str) -> None:
    assert shorter_names(name) == NAMES[name]


@pytest.mark.parametrize(
    ("columns", "form"), [(99, "a::b::c(int)"), (11, "a::b::c"), (6, "b::c"), (1, "c"), (0, "c")]
)
def test_the_longest_form_that_fits(columns: int, form: str) -> None:
    assert short_name("a::b::c(int)", columns) == form


@pytest.mark.parametrize(
    "name", ["", "(", ")", "<", ">", "::", "a<b", "a>b", "operator", "f()\n(", "<" * 5000]
)
def test_any_text_is_a_name(name: str) -> None:
    assert shorter_names(name)[0] == name


@pytest.mark.parametrize(
    ("full", "shown"), [(False, "ns::map<…>::find"), (True, f"ns::map<{'int, ' * 20}int>::find")]
)
def test_stacks_have_short_names_unless_asked_for_in_full(full: bool, shown: str) -> None:
    frame = Frame(LookupAddress(0x1000), How.CFI, False, None, None, False)
    line = Line(frame, Location(f"ns::map<{'int, ' * 20}int>::find", None, None, None, False))
    widths = Widths(name=20, file=0, full_names=full)
    assert shown in click.unstyle(stack_text._line_text(line, "0", widths)).split("  ")
