"""`unspool stack`: every thread's stack now, of a live process or of a core file."""

import json

import click

from unspool.binaries import BinaryError
from unspool.capture import CaptureError, LiveProcess
from unspool.capture.process import CapturedProcess
from unspool.cli.stack_frames import ThreadLines, as_object, symbolize_threads
from unspool.cli.stack_text import summary_text, thread_text
from unspool.symbols import PerfMap, Symbolizer


@click.command("stack", short_help="Every thread's stack now.")
@click.argument("target", metavar="PID | [EXE]", required=False)
@click.option("--core", type=click.Path(), help="A core file instead of a process; EXE is its program.")
@click.option("-n", "--limit", type=click.IntRange(1), help="At most so many frames a thread.")
@click.option("--thread", "tids", type=int, multiple=True, help="Only this thread (may be repeated).")
@click.option("--no-inlines", is_flag=True, help="Leave out inlined functions.")
@click.option("--registers", is_flag=True, help="Print each thread's registers.")
@click.option(
    "--debug-dir", "debug_dirs", type=click.Path(), multiple=True, help="Search debug files here too."
)
@click.option("--debuginfod", is_flag=True, help="Download missing debug files from $DEBUGINFOD_URLS.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def stack(
    target: str | None,
    core: str | None,
    limit: int | None,
    tids: tuple[int, ...],
    no_inlines: bool,
    registers: bool,
    debug_dirs: tuple[str, ...],
    debuginfod: bool,
    as_json: bool,
) -> None:
    """Print every thread's stack, of the process PID or of a core file.

    A thread stands still only while its registers and its stack are copied. As after SIGSTOP and SIGCONT, a
    blocking call such as epoll_wait may return EINTR.
    """
    symbolizer = Symbolizer(debug_dirs, debuginfod=debuginfod)
    try:
        process = _open(target, core)
        threads = _threads(process, symbolizer, list(tids), limit)
    except (CaptureError, BinaryError) as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        click.echo(json.dumps(_as_object(process, threads), indent=1))
    else:
        _print(process, threads, inlines=not no_inlines, registers=registers)
    _tell_missing(process, symbolizer, threads)


def _open(target: str | None, core: str | None) -> CapturedProcess:
    if core is not None:
        from unspool.capture.core_dump import CoreDump

        return CoreDump.open(core, target)
    if target is None or not target.isdecimal():
        raise click.UsageError("give a process id, or --core CORE: unspool stack PID")
    return LiveProcess(int(target))


def _threads(
    process: CapturedProcess, symbolizer: Symbolizer, tids: list[int], limit: int | None
) -> list[ThreadLines]:
    """Captures first, as the threads are at this moment; then walks and symbolizes, which may take longer."""
    captured = list(process.capture(tids or None))
    unknown = set(tids) - {thread.tid for thread in captured}
    if unknown:
        known = ", ".join(map(str, process.thread_ids()))
        raise CaptureError(f"process {process.pid} has no thread {min(unknown)}", f"its threads are {known}")
    process.load_modules()
    walked = [(thread, process.walk(thread)) for thread in captured]
    jit_names = PerfMap.of_process(process.pid) if isinstance(process, LiveProcess) else None
    return symbolize_threads(walked, symbolizer, jit_names, limit)


def _as_object(process: CapturedProcess, threads: list[ThreadLines]) -> dict[str, object]:
    return {
        "pid": process.pid,
        "arch": process.arch,
        "missing": process.missing,
        "threads": [as_object(thread) for thread in threads],
    }


def _print(process: CapturedProcess, threads: list[ThreadLines], *, inlines: bool, registers: bool) -> None:
    click.echo(click.style(f"process {process.pid}", bold=True) + f"  {process.command}\n")
    for thread in threads:
        for line in thread_text(thread, inlines=inlines, registers=registers):
            click.echo(line)
        click.echo()
    click.echo(summary_text(threads))


def _tell_missing(process: CapturedProcess, symbolizer: Symbolizer, threads: list[ThreadLines]) -> None:
    """What would make the stacks better, on standard error."""
    for name, why in process.missing.items():
        click.echo(f"{name}: not used: {why}", err=True)
    binaries = {
        line.frame.module.binary: None
        for thread in threads
        for line in thread.lines
        if line.frame.module and line.frame.module.binary
    }
    for binary in binaries:
        for note in symbolizer.findings(binary).notes:
            click.echo(f"{note.what}" + (f": {note.remedy}" if note.remedy else ""), err=True)
