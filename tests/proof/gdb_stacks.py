"""Runs inside gdb: prints every thread's frames as JSON, one thread a line, innermost frame first.

kind: "normal", "inlined", "tail call" (no frame: gdb has inferred that a call was there), "signal" (the code
that returns from a signal handler). name: as the file has it where gdb knows it (mangled), else as gdb
prints it; None where bt prints "??".
"""

import json

import gdb  # type: ignore[import-untyped]

LIMIT = 20000
KINDS = {
    gdb.NORMAL_FRAME: "normal",
    gdb.INLINE_FRAME: "inlined",
    gdb.TAILCALL_FRAME: "tail call",
    gdb.SIGTRAMP_FRAME: "signal",
}


def described(frame: gdb.Frame) -> dict[str, object]:
    function = frame.function()
    name = frame.name()
    line = frame.find_sal()
    return {
        "pc": frame.pc(),
        "kind": KINDS.get(frame.type(), "other"),
        "name": name,
        "linkage_name": function.linkage_name if function is not None else name,
        "file": line.symtab.filename if line.symtab is not None else None,
        "line": line.line if line.symtab is not None else None,
    }


def frames_of(thread: gdb.InferiorThread) -> dict[str, object]:
    frames: list[dict[str, object]] = []
    end = "outermost"
    try:
        thread.switch()
        frame = gdb.newest_frame()
        while frame is not None and len(frames) < LIMIT:
            frames.append(described(frame))
            older = frame.older()
            if older is None:
                end = gdb.frame_stop_reason_string(frame.unwind_stop_reason())
            frame = older
    except gdb.error as error:
        end = str(error)
    return {"tid": thread.ptid[1], "frames": frames, "end": end}


gdb.execute("set print demangle off")
for setting in ("past-main on", "past-entry on", "limit unlimited"):
    gdb.execute(f"set backtrace {setting}")
for thread in sorted(gdb.selected_inferior().threads(), key=lambda thread: thread.ptid[1]):
    print("thread " + json.dumps(frames_of(thread)), flush=True)
