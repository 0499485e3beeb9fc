"""`unspool report`: what a recording says, and how far that is true."""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from enum import IntEnum, IntFlag

import click

from unspool.capture.samples import BinaryKind
from unspool.cli.columns import printable, width
from unspool.cli.report_text import report_text
from unspool.cli.short_names import full_names_option
from unspool.profile import Profile, RecordingError
from unspool.profile.report import report_of
from unspool.profile.truth import NamelessBinary
from unspool.symbols.debug_packages import install_command

_ASKED, _WORTH_ASKING = 3, 0.01  # the package database takes half a second a binary


@click.command(short_help="What a recording says, and how far that is true.")
@click.argument("file", type=click.Path())
@click.option("-n", "--limit", type=click.IntRange(1), default=15, help="At most so many lines a table.")
@full_names_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text; names are in full.")
def report(file: str, limit: int, full_names: bool, as_json: bool) -> None:
    """Print totals, the hottest functions and lines, threads, and the truth report: which stacks are
    complete, guessed or cut, how frames were found, what was lost, not sampled or has no names.

    FILE may still be written.
    """
    try:
        found = report_of(Profile.open(file), limit)
    except RecordingError as error:
        raise click.ClickException(printable(str(error))) from None
    if as_json:
        click.echo(json.dumps(_as_object(asdict(found)), indent=1))
        return
    for line in report_text(found, _commands(found.nameless), width(), full_names=full_names):
        click.echo(line)


def _as_object(value: object) -> object:
    """As JSON has it: numbers that have a name by that name."""
    if isinstance(value, dict):
        return {str(_as_object(key)): _as_object(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_as_object(inner) for inner in value]
    return (value.name or "").lower() if isinstance(value, IntEnum | IntFlag) else value


def _commands(binaries: Sequence[NamelessBinary]) -> dict[str, str]:
    """What brings the debug information of those that matter most."""
    asked = [
        binary.path
        for binary in binaries
        if binary.kind is BinaryKind.FILE
        and binary.state in ("functions", "none")
        and binary.self_share >= _WORTH_ASKING
    ][:_ASKED]
    with ThreadPoolExecutor(max_workers=_ASKED) as pool:
        return dict(zip(asked, pool.map(install_command, asked), strict=True))
