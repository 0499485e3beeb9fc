"""Recordings: writing them, reading them as arrays, naming their frames, reporting them."""

from unspool.profile.errors import RecordingError
from unspool.profile.model import Profile
from unspool.profile.recording import RecordingWriter

__all__ = ["Profile", "RecordingError", "RecordingWriter"]
