"""Runs inside gdb: prints the frames that it sees, and whether it takes the last for the outermost.

Inlined frames have no return address of their own, and frames that gdb infers from tail calls are gone.
"""

import gdb  # type: ignore[import-untyped]

gdb.execute("set backtrace past-main on")
gdb.execute("set backtrace past-entry on")
gdb.execute("set backtrace limit 1000")
frame = gdb.newest_frame()
end = "error"
while frame is not None:
    if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
        print(f"frame {frame.pc():#x}")
    reason = frame.unwind_stop_reason()
    end = "complete" if reason in (gdb.FRAME_UNWIND_OUTERMOST, gdb.FRAME_UNWIND_NO_REASON) else "error"
    frame = frame.older()
print(f"end {end}")
