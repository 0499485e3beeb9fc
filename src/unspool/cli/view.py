"""`unspool view`: a recording's flame graph in the browser."""

import os
import tempfile
import webbrowser
from hashlib import blake2b
from pathlib import Path

import click

from unspool.cache import Cache
from unspool.capture import CaptureError
from unspool.cli.columns import printable
from unspool.cli.import_ import as_recording
from unspool.export import ExportError, write
from unspool.profile import Profile, RecordingError

_FOLDER = "view"


@click.command("view", short_help="A recording's flame graph in the browser.")
@click.argument("file", type=click.Path())
def view(file: str) -> None:
    """Show the flame graph of FILE, a recording or a perf.data file, in the browser, and print where it is.

    It is one HTML file that needs nothing else; `unspool export` writes it to where you say.
    """
    try:
        path = _place(Path(file))
        with as_recording(file) as recording:
            write(Profile.open(recording), path)
    except (CaptureError, RecordingError, ExportError) as error:
        raise click.ClickException(printable(str(error))) from None
    click.echo(path)
    if not _has_display():
        click.echo("there is no display here: open this file in a browser", err=True)
    elif not webbrowser.open(path.as_uri()):
        click.echo("no browser was found: open this file in one", err=True)


def _has_display() -> bool:
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


def _place(recording: Path) -> Path:
    """In the user's cache, always the same for a recording; where there is none, in a temporary folder."""
    digest = blake2b(os.fsencode(recording.absolute()), digest_size=6).hexdigest()
    name = f"{recording.name.removesuffix('.unspool')[:100]}-{digest}.html"
    root = Cache.of_user().root
    if root is not None:
        folder = root / _FOLDER
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                return folder / name
        except OSError:
            pass
    return Path(tempfile.mkdtemp(prefix="unspool-")) / name
