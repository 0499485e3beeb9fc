"""The one error of recordings: what can't be written or read, why, and what helps."""


class RecordingError(Exception):
    """A recording can't be written or read: which file, what is wrong, and the remedy."""

    def __init__(self, path: str, what: str, remedy: str) -> None:
        super().__init__(path, what, remedy)
        self.path = path
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.path}: {self.what}: {self.remedy}"
