"""Names of functions that fit a terminal."""

from __future__ import annotations

import pytest

from tests.short_names import NAMES
from unspool.cli.short_names import short_name, shorter_names


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
