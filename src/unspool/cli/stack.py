"""`unspool stack`: every thread's stack now, of a live process or of a core file."""

import json
from contextlib import closing

import click

from unspool.binaries import BinaryError
from unspool.capture import CaptureError
from unspool.capture.core_notes import Signal
from unspool.capture.live_process import LiveProcess
from unspool.capture.process import CapturedProcess
from unspool.cli.columns import printable, signal_name
from unspool.cli.downloads import Downloads
from unspool.cli.short_names import full_names_option
from unspool.cli.stack_frames import ThreadLines, as_object, symbolize_threads
from unspool.cli.stack_notes import notes_about
from unspool.cli.stack_text import Widths, summary_text, thread_text
from unspool.symbols import PerfMap, Symbolizer

_COMMAND_WIDTH = 200  # characters of a command that are shown


@click.command("stack", short_help="Every thread's stack now.")
@click.argument("target", metavar="PID | [EXE]", required=False)
@click.option("--core", type=click.Path(), help="A core file instead of a process; EXE is its program.")
@click.option(
    "--sysroot",
    "sysroots",
    type=click.Path(exists=True, file_okay=False),
    multiple=True,
    help="Search a core's files here.",
)
@click.option("-n", "--limit", type=click.IntRange(1), help="At most so many frames a thread.")
@click.option("--thread", "tids", type=int, multiple=True, help="Only this thread (may be repeated).")
@click.option("--no-inlines", is_flag=True, help="Leave out inlined functions.")
@click.option("--registers", is_flag=True, help="Print each thread's registers (JSON always has them).")
@click.option(
    "--debug-dir",
    "debug_dirs",
    type=click.Path(exists=True, file_okay=False),
    multiple=True,
    help="Search debug files here too.",
)
@click.option("--debuginfod", is_flag=True, help="Download missing debug files from $DEBUGINFOD_URLS.")
@full_names_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text; names are in full.")
def stack(
    target: str | None,
    core: str | None,
    sysroots: tuple[str, ...],
    limit: int | None,
    tids: tuple[int, ...],
    no_inlines: bool,
    registers: bool,
    debug_dirs: tuple[str, ...],
    debuginfod: bool,
    full_names: bool,
    as_json: bool,
) -> None:
    """Print every thread's stack, of the process PID or of a core file.

    A thread stands still only while its registers and its stack are copied. As after SIGSTOP and SIGCONT, a
    blocking call such as epoll_wait may return EINTR.
    """
    if sysroots and core is None:
        raise click.UsageError("--sysroot goes with --core")
    symbolizer = Symbolizer(debug_dirs, debuginfod=debuginfod, progress=Downloads())
    try:
        with closing(_open(target, core, sysroots)) as process:
            threads = _threads(process, symbolizer, list(tids), limit, inlines=not no_inlines)
            notes = notes_about(process, symbolizer, threads)
    except (CaptureError, BinaryError) as error:
        raise click.ClickException(printable(str(error))) from None
    if as_json:
        click.echo(json.dumps(_as_object(process, threads, notes), indent=1))
    else:
        _print(process, threads, registers=registers, full_names=full_names)
    for note in notes:
        click.echo(printable(note), err=True)


def _open(target: str | None, core: str | None, sysroots: tuple[str, ...]) -> CapturedProcess:
    if core is not None:
        from unspool.capture.core_dump import CoreDump

        return CoreDump.open(core, target, sysroots)
    if target is None:
        raise click.UsageError("give a process id, or --core CORE: unspool stack PID")
    if not target.isdecimal():
        raise click.UsageError(f"{target!r} is no process id: give a number, or a core file with --core")
    return LiveProcess(int(target))


def _threads(
    process: CapturedProcess, symbolizer: Symbolizer, tids: list[int], limit: int | None, *, inlines: bool
) -> list[ThreadLines]:
    walked = process.stacks(tids or None)
    unknown = set(tids) - {thread.tid for thread, _ in walked}
    if unknown:
        known = ", ".join(map(str, process.thread_ids()))
        raise CaptureError(f"process {process.pid} has no thread {min(unknown)}", f"its threads are {known}")
    jit_names = PerfMap.of_process(process.pid) if isinstance(process, LiveProcess) else None
    return symbolize_threads(walked, symbolizer, jit_names, limit, inlines=inlines)


def _as_object(process: CapturedProcess, threads: list[ThreadLines], notes: list[str]) -> dict[str, object]:
    return {
        "pid": process.pid,
        "namespace_pid": process.namespace_pid,
        "command": process.command,
        "arch": process.arch,
        "signal": None if process.signal is None else _signal_as_object(process.signal),
        "threads": [as_object(thread) for thread in threads],
        "notes": notes,
    }


def _signal_as_object(ended: Signal) -> dict[str, object]:
    address = None if ended.address is None else f"{ended.address:#x}"
    return {"number": ended.number, "name": signal_name(ended.number), "tid": ended.tid, "address": address}


def _print(
    process: CapturedProcess, threads: list[ThreadLines], *, registers: bool, full_names: bool
) -> None:
    click.echo(_heading(process))
    if process.signal is not None:
        where = "" if process.signal.address is None else f" at address {process.signal.address:#x}"
        words = f"killed by {signal_name(process.signal.number)}{where} in thread {process.signal.tid}"
        click.echo(click.style(words, fg="red"))
    widths = Widths.of(threads, full_names=full_names)
    for thread in threads:
        click.echo()
        for line in thread_text(thread, widths, registers=registers):
            click.echo(line)
    click.echo()
    click.echo(summary_text(threads))


def _heading(process: CapturedProcess) -> str:
    words = [click.style(f"process {process.pid}", bold=True)]
    if process.namespace_pid not in (None, process.pid):
        words.append(f"({process.namespace_pid} in its container)")
    command = printable(process.command)
    words.append(command if len(command) <= _COMMAND_WIDTH else command[:_COMMAND_WIDTH] + "…")
    return "  ".join(words)
