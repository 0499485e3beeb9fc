"""With CI=true a skipped test is a failure, and says why it was skipped."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import pytest

def test_skips():
    pytest.skip("no tool")

@pytest.mark.skipif(True, reason="no machine")
def test_is_skipped():
    pass

@pytest.mark.xfail(reason="known")
def test_fails_as_known():
    assert False

def test_passes():
    pass
"""
MODULE = 'import pytest\npytest.importorskip("no_such_module_anywhere")\n'


@pytest.mark.parametrize(
    ("ci", "summary"), [("true", "1 failed, 1 passed, 1 xfailed, 2 errors"), ("", "3 skipped")]
)
def test_skips_fail_in_ci(tmp_path: Path, ci: str, summary: str) -> None:
    """Skips in tests, by marks and of whole modules count as failures there, and only there."""
    shutil.copy(Path(__file__).parents[1] / "conftest.py", tmp_path)
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "test_module.py").write_text(MODULE)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--continue-on-collection-errors",
    ]
    result = subprocess.run(
        [*command, "--rootdir", tmp_path, tmp_path],
        capture_output=True,
        text=True,
        env=os.environ | {"CI": ci},
        cwd=tmp_path,
    )
    assert summary in result.stdout, result.stdout
    assert ("nothing may be skipped with CI=true, but: Skipped: no tool" in result.stdout) == (ci == "true")
