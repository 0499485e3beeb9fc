"""One folder for the programs of a test run; one for what a single test writes is pytest's tmp_path."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("battery")
    folder.chmod(0o755)
    return folder
