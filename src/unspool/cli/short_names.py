"""Names of functions for people: what says least goes first, until they fit. The flame graph does the same
(names.js), and tests hold both to one list."""

from __future__ import annotations

import re
from functools import lru_cache

import click

from unspool.cli.columns import cells

COLUMNS = 60  # that a name takes at most where no terminal says how many there are, if a form of it fits
full_names_option = click.option(
    "--full-names", is_flag=True, help="Print names of functions in full, however long they are."
)

_CLOSING = {"(": ")", "<": ">", "[": "]", "{": "}"}
_SUFFIX = re.compile(r"( const)?( volatile)?( &{1,2})?( noexcept)?( \[clone [^\]]*\])*$")
# "operator<<" and the like are one token; in "operator<<int>" the last "<" opens the arguments.
_TOKEN = re.compile(r"operator *(?:\(\)|[^\w\s(]+(?=[\s(]|$)|[^\w\s(]+(?=<))|.", re.DOTALL)


@lru_cache(maxsize=1 << 14)
def short_name(name: str, columns: int = COLUMNS) -> str:
    """The longest form that takes at most so many columns, or the shortest there is."""
    forms = shorter_names(name)
    return next((form for form in forms if cells(form) <= columns), forms[-1])


def shorter_names(name: str) -> list[str]:
    """From the whole name to the shortest that still says which function it is."""
    forms = [name]

    def add(form: str) -> None:
        if form and len(form) < len(forms[-1]):
            forms.append(form)

    add(_without_parameters(name))
    add(_without_arguments(forms[-1]))
    parts = _path(forms[-1])
    for count in range(len(parts) - 1, 0, -1):
        add("::".join(parts[-count:]))
    add(forms[-1].replace("<…>", ""))
    return forms


def _without_parameters(name: str) -> str:
    """ "f(int) const" → "f"."""
    end = _SUFFIX.sub("", name, count=1)
    if not end.endswith(")"):
        return name
    depth = 0
    for i in range(len(end) - 1, 0, -1):
        depth += (end[i] == ")") - (end[i] == "(")
        if depth == 0:
            rest = end[:i].rstrip()
            return name if not rest or rest.endswith(("operator", "::")) else rest
    return name


def _without_arguments(name: str) -> str:
    """ "map<int, list<int>>::find" → "map<…>::find". What begins a path, as "<T as Trait>::call", stays."""
    text, depth = "", 0
    for token in _TOKEN.findall(name):
        if token == "<" and depth == 0 and text and text[-1] != ":" and not text[-1].isspace():
            text, depth = text + "<…>", 1
        elif token == "<" and depth > 0:
            depth += 1
        elif token == ">" and depth > 0:
            depth -= 1
        elif depth == 0:
            text += token
    return text if depth == 0 else name  # not balanced: no such name


def _path(name: str) -> list[str]:
    """The parts between "::" that lie in no brackets."""
    parts, opened = [""], list[str]()
    for token in _TOKEN.findall(name):
        if opened and token == opened[-1]:
            opened.pop()
        elif token in _CLOSING:
            opened.append(_CLOSING[token])
        parts[-1] += token
        if not opened and parts[-1].endswith("::"):
            parts[-1] = parts[-1][:-2]
            parts.append("")
    return [name] if opened else parts
