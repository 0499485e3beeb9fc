"""How far the naming of frames is, in one line on standard error: on a terminal only."""

import sys
import time

import click

from unspool.cli.columns import fitted
from unspool.profile.naming import NamingProgress

_COLUMNS = 79
_SECONDS = 0.1  # between two updates


class NamingLine:
    """To be called with every step; `close` removes the line."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._shown_at = 0.0

    def __call__(self, progress: NamingProgress) -> None:
        """Raises nothing."""
        now = time.monotonic()
        if not sys.stderr.isatty() or now - self._shown_at < _SECONDS:
            return
        self._shown_at = now
        words = f"naming {progress.done:,} of {progress.total:,} frames"
        if progress.done:
            left = (now - self._started) * (progress.total - progress.done) / progress.done
            words += f", {left:.0f} s left"
        if progress.binary:
            words += f": {progress.binary}"
        click.echo(f"\r{fitted(words, _COLUMNS)}\x1b[K", err=True, nl=False)

    def close(self) -> None:
        if self._shown_at:
            click.echo("\r\x1b[K", err=True, nl=False)
