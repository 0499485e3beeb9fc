"""Profiles in other formats: one function, `write`, for all of them."""

from unspool.export.errors import ExportError
from unspool.export.formats import FORMATS, Format, format_of, write

__all__ = ["FORMATS", "ExportError", "Format", "format_of", "write"]
