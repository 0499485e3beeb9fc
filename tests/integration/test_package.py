"""The package as users get it: one wheel for every Python, with the library inside."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel, built without the developer's settings."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    command += ["-C", f"build-dir={folder / 'build'}", "-w", folder, ROOT]
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(command, check=True, env=environment)
    (path,) = folder.glob("*.whl")
    return path


def test_one_wheel_serves_every_python(wheel: Path) -> None:
    """The tag names no Python version and no ABI, only the platform."""
    name, _, python, abi, platform = wheel.stem.split("-")
    assert (name, python, abi) == ("unspool", "py3", "none")
    assert platform.startswith("linux_")


def test_the_library_and_every_module_are_inside(wheel: Path) -> None:
    """Both libraries lie in the package, beside all of src/unspool; nothing of tests or the core does."""
    names = set(zipfile.ZipFile(wheel).namelist())
    source = ROOT / "src"
    files = [*(source / "unspool").rglob("*.py"), *(source / "unspool/export/viewer").iterdir()]
    modules = {str(path.relative_to(source)) for path in files}
    packaged = {name for name in names if name.startswith("unspool/")}
    assert packaged == modules | {
        "unspool/py.typed",
        "unspool/libunspool.so",
        "unspool/libunspool_agent.so",
        "unspool/_core_declarations.py",
    }
    assert {name.split("/")[0].split("-")[0] for name in names} == {"unspool"}


def test_the_wheel_works_from_a_folder(wheel: Path, tmp_path: Path) -> None:
    """Unpacked, it loads its own library and runs."""
    zipfile.ZipFile(wheel).extractall(tmp_path)
    program = "import unspool.core; print(unspool.core.library_path()); unspool.Unwinder('aarch64')"
    # Without site, so that no editable installation of unspool gets in the way.
    command = [sys.executable, "-S", "-c", program]
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{sysconfig.get_path('platlib')}"}
    result = subprocess.run(
        command, check=True, capture_output=True, text=True, env=environment, cwd=tmp_path
    )
    assert result.stdout.strip() == str(tmp_path / "unspool" / "libunspool.so")
