"""Builds programs with framehop, which is fetched, since Debian 12 does not have it and Debian 13 does.

apt fetches the packages from the mirror that this machine uses, and checks them by Debian's signatures. They
are unpacked under out/oracle/framehop: nothing is installed, and the machine's own apt is left as it is.
"""

import os
import shutil
import tomllib
from pathlib import Path
from subprocess import PIPE, CalledProcessError, TimeoutExpired, run

SUITE = "trixie"
PACKAGE = "librust-framehop-dev"
KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SOURCES = Path(__file__).parent / "framehop"
TIME_LIMIT = 300  # seconds for apt, and for cargo


class Unavailable(Exception):
    """framehop can't be had on this machine; says why."""


def output(*command: str | Path, folder: Path) -> str:
    """What a command prints. Raises CalledProcessError, TimeoutExpired, FileNotFoundError."""
    environment = os.environ | {"LC_ALL": "C"}
    ended = run(command, cwd=folder, env=environment, stdout=PIPE, text=True, check=True, timeout=TIME_LIMIT)
    return ended.stdout


def mirror(folder: Path) -> str:
    """The address of Debian's packages that apt uses here. Raises Unavailable."""
    said = output("apt-get", "indextargets", "--format", "$(REPO_URI)", "Label: Debian", folder=folder)
    addresses = said.split()
    if not addresses or not KEYS.exists():
        raise Unavailable("apt knows no mirror of Debian, or not Debian's keys")
    return addresses[0]


def fetch(folder: Path) -> None:
    """Fetch the package and all Rust packages that it needs into the folder."""
    sources = folder / "sources.list"
    sources.write_text(f"deb [arch=amd64 signed-by={KEYS}] {mirror(folder)} {SUITE} main\n")
    settings = {
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::preferencesparts": "/dev/null",
        "Dir::State": folder,
        "Dir::State::status": "/dev/null",  # as if nothing were installed
        "Dir::Cache": folder / "cache",
        "Acquire::Languages": "none",
        "APT::Install-Recommends": "false",
    }
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in settings.items())]
    (folder / "lists").mkdir(exist_ok=True)
    output(*apt, "update", folder=folder)
    plan = [
        line.split() for line in output(*apt, "--simulate", "install", PACKAGE, folder=folder).splitlines()
    ]
    names = [words[1] for words in plan if words[:1] == ["Inst"] and words[1].startswith("librust-")]
    output(*apt, "download", *names, folder=folder)


def crates(folder: Path) -> Path:
    """The folder of the crates, unpacked; fetched when they are not there yet."""
    unpacked = folder / "unpacked"
    if not unpacked.exists():
        partial = folder / "partial"
        for old in (partial, folder / "packages"):
            shutil.rmtree(old, ignore_errors=True)
        packages = folder / "packages"
        packages.mkdir(parents=True)
        fetch(packages)
        for package in sorted(packages.glob("*.deb")):
            output("dpkg-deb", "-x", package, partial, folder=folder)
        shutil.rmtree(packages)
        partial.rename(unpacked)
    return unpacked / "usr/share/cargo/registry"


def build_framehop(out: Path, sources: Path = SOURCES) -> Path:
    """The program whose crate is in a folder; the oracle's prints frames (framehop/src/main.rs). Raises
    Unavailable."""
    folder = out / "framehop"
    name = str(tomllib.loads((sources / "Cargo.toml").read_text())["package"]["name"])
    program = folder / name
    if os.uname().machine != "x86_64":
        raise Unavailable("the comparison has it for x86_64 only")
    try:
        registry = crates(folder)
        shutil.copytree(sources, program, dirs_exist_ok=True)
        (program / ".cargo").mkdir(exist_ok=True)
        (program / ".cargo" / "config.toml").write_text(
            '[source.crates-io]\nreplace-with = "debian"\n'
            f'[source.debian]\ndirectory = "{registry}"\n[build]\ntarget-dir = "target"\n'
        )
        output("cargo", "build", "--quiet", "--release", "--offline", folder=program)
    except (CalledProcessError, TimeoutExpired) as error:
        words = [Path(word).name for word in error.cmd if not str(word).startswith("-")]
        raise Unavailable(f"{' '.join(words[:2])} failed") from error
    except FileNotFoundError as error:
        raise Unavailable(f"there is no {error.filename}") from error
    return program / "target" / "release" / name
