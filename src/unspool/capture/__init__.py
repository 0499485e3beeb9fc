"""Where samples come from: so far live processes and core files."""

from unspool.capture.core_dump import CoreDump
from unspool.capture.errors import CaptureError
from unspool.capture.live_process import LiveProcess
from unspool.capture.process import CapturedProcess, CapturedThread

__all__ = ["CaptureError", "CapturedProcess", "CapturedThread", "CoreDump", "LiveProcess"]
