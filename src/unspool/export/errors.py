"""The one error of exporting: what can't be written, why, and what helps."""


class ExportError(Exception):
    """A profile can't be exported: what failed, and the remedy."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what, remedy)
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what}: {self.remedy}"
