"""Where samples come from: running programs, perf.data, live processes, core files. Each source is a module,
imported by whoever needs it."""

from unspool.capture.errors import CaptureError

__all__ = ["CaptureError"]
