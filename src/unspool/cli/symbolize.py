"""`unspool symbolize`: names for a recording's frames, again, when more is known than at its end."""

from contextlib import closing

import click

from unspool.cli.columns import printable
from unspool.cli.downloads import Downloads
from unspool.cli.naming_progress import NamingLine
from unspool.profile import RecordingError
from unspool.profile.naming import name_again
from unspool.symbols import Symbolizer

_STATES = {
    "lines": "functions, files, lines and inlined calls",
    "functions": "functions only",
    "none": "no symbols",
    "missing": "not found, its names stay as they were",
    "changed": "it is another file now, its names stay as they were",
}


@click.command(short_help="Name a recording's frames again.")
@click.argument("file", type=click.Path())
@click.option(
    "--debug-dir",
    "debug_dirs",
    type=click.Path(exists=True, file_okay=False),
    multiple=True,
    help="Search files here, too.",
)
@click.option("--debuginfod", is_flag=True, help="Download missing debug files from $DEBUGINFOD_URLS.")
def symbolize(file: str, debug_dirs: tuple[str, ...], debuginfod: bool) -> None:
    """Look up functions, files, lines and inlined calls of FILE once more, and replace what was known.

    Binaries are searched by their paths, and by build id in the directories. A file that is not the one that
    was recorded is not used. What is named already, of binaries that are not found, stays.
    """
    symbolizer = Symbolizer(debug_dirs, debuginfod=debuginfod, progress=Downloads())
    try:
        with closing(NamingLine()) as line:
            results = name_again(file, symbolizer, debug_dirs, line)
    except RecordingError as error:
        raise click.ClickException(printable(str(error))) from None
    for found, state, note in results:
        click.echo(printable(f"{found.path}: {_STATES[state]}" + (f" ({note})" if note else "")))
