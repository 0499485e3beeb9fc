"""The command line: `unspool VERB ...`, one module a verb, loaded when it is used.

Results go to standard output, errors to standard error in one line: what failed, where, what to do.
"""

import os
import sys
from importlib import import_module

import click

# Verb -> module with a click command of the same name.
_VERBS = {
    "doctor": "unspool.cli.doctor",
    "export": "unspool.cli.export",
    "import": "unspool.cli.import_",
    "query": "unspool.cli.query",
    "record": "unspool.cli.record",
    "report": "unspool.cli.report",
    "stack": "unspool.cli.stack",
    "symbolize": "unspool.cli.symbolize",
    "view": "unspool.cli.view",
    "unwind-info": "unspool.cli.unwind_info",
}


class _Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _VERBS:
            return None
        command = getattr(import_module(_VERBS[cmd_name]), _VERBS[cmd_name].rpartition(".")[2])
        assert isinstance(command, click.Command)
        return command


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="unspool")
@click.pass_context
def unspool(ctx: click.Context) -> None:
    """Shows what a running program is doing, and how certain that answer is."""
    ctx.color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def main() -> None:
    """Entry point of the `unspool` command."""
    try:
        unspool()
    except OSError as error:  # a full disk behind standard output
        click.echo(f"Error: {error.strerror or error}", err=True)
        sys.exit(1)
