"""`unspool query`: any question to a recording, in SQL."""

import csv
import json
import sqlite3
import sys
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice

import click

from unspool.cli.columns import cells, fitted, padded, printable, width
from unspool.cli.short_names import COLUMNS, full_names_option, short_name
from unspool.profile import RecordingError
from unspool.profile.database import open_for_reading

_ROWS_AT_ONCE = 200  # of a table: columns are as wide as these rows need
_WIDEST = 60  # of a column among several, on a terminal
_STEPS = 100_000  # of SQLite, between two looks whether Ctrl-C was pressed
_REMEDY = "give one SELECT; docs/recording.md describes the tables"


@click.command(short_help="Answer a question to a recording, in SQL.")
@click.argument("file", type=click.Path())
@click.argument("sql", metavar="SQL")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV; names are in full.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: a list of objects; names are in full.")
@full_names_option
def query(file: str, sql: str, as_csv: bool, as_json: bool, full_names: bool) -> None:
    """Run a query over FILE, which may still be written and is never changed.

    Views for common questions: function_self, function_total, line_self, thread_time, sample_ends. All tables
    are described in docs/recording.md.

    \b
        unspool query FILE "SELECT * FROM function_self LIMIT 10"
    """
    if as_csv and as_json:
        raise click.UsageError("choose one of --csv and --json")
    try:
        with closing(open_for_reading(file)) as connection:
            connection.set_progress_handler(lambda: 0, _STEPS)  # Python sees signals meanwhile
            rows = connection.execute(sql)
            if rows.description is None:
                raise click.UsageError("this is no query: give a SELECT")
            names = [name for name, *_ in rows.description]
            if as_csv:
                _print_csv(names, rows)
            elif as_json:
                _print_json(names, rows)
            else:
                long = set() if full_names else _long_names(connection)
                _print_table(names, rows, long, None if full_names else width())
    except RecordingError as error:
        raise click.ClickException(printable(str(error))) from None
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT:
            raise click.Abort from None
        raise click.ClickException(printable(f"{file}: {str(error).rstrip('.')}: {_REMEDY}")) from None


def _print_csv(names: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)


def _print_json(names: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Row by row: there may be millions."""
    click.echo("[", nl=False)
    for number, row in enumerate(rows):
        value = {name: _as_json(cell) for name, cell in zip(names, row, strict=True)}
        click.echo(("," if number else "") + "\n " + json.dumps(value), nl=False)
    click.echo("\n]")


def _as_json(cell: object) -> object:
    return cell.hex() if isinstance(cell, bytes) else cell


def _long_names(connection: sqlite3.Connection) -> set[object]:
    """Names of functions that people would not read to their end."""
    query = f"SELECT name FROM functions WHERE length(name) > {COLUMNS}"
    return {name for (name,) in connection.execute(query) if isinstance(name, str)}


def _print_table(
    names: Sequence[str], rows: Iterator[Sequence[object]], long: set[object], columns: int | None
) -> None:
    """Numbers to the right; names that are in `long` shortened. On a terminal of so many columns, cells are
    cut so that lines fit; elsewhere they are as wide as the first rows need."""
    first = list(islice(rows, _ROWS_AT_ONCE))
    numeric = [all(isinstance(row[i], int | float | None) for row in first) for i in range(len(names))]
    shown = [list(map(_text, names)), *([_text(cell, long) for cell in row] for row in first)]
    widths = _widths([max(cells(row[i]) for row in shown) for i in range(len(names))], columns)
    limits: Sequence[int | None] = [None] * len(widths) if columns is None else widths
    for number, row in enumerate(shown):
        line = _line(row, widths, limits, numeric)
        click.echo(click.style(line, bold=True) if number == 0 else line)
    for later in rows:
        click.echo(_line([_text(cell, long) for cell in later], widths, limits, numeric))


def _widths(wanted: list[int], available: int | None) -> list[int]:
    """What each column gets of a terminal's columns: the widest give first."""
    if available is None:
        return wanted
    widths = [min(columns, _WIDEST) for columns in wanted] if len(wanted) > 1 else list(wanted)
    excess = sum(widths) + 2 * (len(widths) - 1) - available
    while excess > 0 and max(widths) > 1:
        widths[widths.index(max(widths))] -= 1
        excess -= 1
    return widths


def _line(
    row: Sequence[str], widths: Sequence[int], limits: Sequence[int | None], numeric: Sequence[bool]
) -> str:
    return "  ".join(
        padded(fitted(cell, limit), columns, right=right)
        for cell, limit, columns, right in zip(row, limits, widths, numeric, strict=True)
    ).rstrip()


def _text(cell: object, long: Container[object] = ()) -> str:
    if cell is None:
        return ""
    if isinstance(cell, str) and cell in long:
        return printable(short_name(cell))
    return printable(cell.hex() if isinstance(cell, bytes) else str(cell))
