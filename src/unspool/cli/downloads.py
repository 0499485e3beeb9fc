"""Tells of downloads on standard error: on a terminal how far each one is, elsewhere that it began."""

import sys

import click

from unspool.symbols import Progress

_MEGABYTE = 1_000_000


class Downloads:
    """To be called with every step of a download."""

    def __init__(self) -> None:
        self._begun: set[str] = set()

    def __call__(self, progress: Progress) -> None:
        """Raises nothing: a download goes on whether or not anybody looks."""
        size = "of unknown size" if progress.total is None else f"{progress.total / _MEGABYTE:.1f} MB"
        if sys.stderr.isatty():
            done = progress.received == progress.total
            words = f"downloading {progress.url}: {progress.received / _MEGABYTE:.1f} MB, {size} in all"
            click.echo(f"\r{words}\x1b[K", err=True, nl=done)
        elif progress.url not in self._begun:
            click.echo(f"downloading {progress.url}, {size}", err=True)
        self._begun.add(progress.url)
