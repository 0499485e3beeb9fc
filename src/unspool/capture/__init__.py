"""Where samples come from: so far live processes."""

from unspool.capture.errors import CaptureError
from unspool.capture.live_process import CapturedThread, LiveProcess

__all__ = ["CaptureError", "CapturedThread", "LiveProcess"]
