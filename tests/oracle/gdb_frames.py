"""Runs inside gdb: prints the pc of each physical frame up to _start.

Inlined frames have no return address of their own, and frames that gdb infers from tail calls are gone.
"""

import gdb  # type: ignore[import-untyped]

gdb.execute("set backtrace past-main on")
gdb.execute("set backtrace past-entry on")
frame = gdb.newest_frame()
while frame is not None:
    if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
        print(f"frame {frame.pc():#x}")
    frame = None if frame.name() == "_start" else frame.older()
