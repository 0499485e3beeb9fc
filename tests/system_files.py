"""Real files that tests read: libraries of this machine and of the cross compilers."""

from pathlib import Path

import pytest

FOLDERS = {
    "x86_64": ("/usr/lib/x86_64-linux-gnu", "/usr/x86_64-linux-gnu/lib", "/usr/lib64"),
    "aarch64": ("/usr/lib/aarch64-linux-gnu", "/usr/aarch64-linux-gnu/lib"),
}


def system_file(arch: str, name: str) -> Path:
    """A shared library by its file name; skips the test where there is none."""
    for folder in FOLDERS[arch]:
        path = Path(folder, name)
        if path.exists():
            return path
    pytest.skip(f"no {name} for {arch} here: install libc6 or the cross compiler's")
