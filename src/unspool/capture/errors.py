"""The one error of capturing: what can't be captured, why, and what helps."""


class CaptureError(Exception):
    """Nothing could be captured: what failed, and the remedy, often a command."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what, remedy)
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what}: {self.remedy}"
