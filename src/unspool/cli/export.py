"""`unspool export`: a recording in another format."""

from pathlib import Path

import click

from unspool.cli.columns import file_size, printable
from unspool.export import FORMATS, ExportError, write
from unspool.profile import Profile, RecordingError

_FORMATS = "".join(f"\b\n  {name:10} {facts.what} ({facts.suffix})\n" for name, facts in FORMATS.items())


@click.command(
    "export",
    short_help="A recording in another format.",
    epilog="\b\nFormats:\n" + _FORMATS.replace("\b\n", ""),
)
@click.argument("file", type=click.Path())
@click.option("-o", "--output", required=True, type=click.Path(), help='Where to; "-": standard output.')
@click.option(
    "-f", "--format", "format_", type=click.Choice(list(FORMATS)), help="Else OUTPUT's suffix says it."
)
@click.option("--event", help="Which event, where there are several and the format can hold only one.")
def export(file: str, output: str, format_: str | None, event: str | None) -> None:
    """Write the recording FILE to OUTPUT in another format.

    An existing OUTPUT is replaced, but no recording by another. Collapsed stacks weigh in the event's unit:
    CPU time in nanoseconds.
    """
    try:
        write(Profile.open(file), output, format_, event)
    except (RecordingError, ExportError) as error:
        raise click.ClickException(printable(str(error))) from None
    if output != "-":
        size = file_size(Path(output).stat().st_size)
        click.echo(f"written to {printable(output)} ({size})", err=True)
