"""Where samples come from: so far live processes."""

from unspool.capture.errors import CaptureError
from unspool.capture.live_process import LiveProcess
from unspool.capture.process import CapturedProcess, CapturedThread

__all__ = ["CaptureError", "CapturedProcess", "CapturedThread", "LiveProcess"]
