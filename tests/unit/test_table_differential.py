"""Tables, differential: random sections, also damaged ones, compiled by the core; at every address where
core or slow evaluator begin a row, they say the same.

The cases are the same in every run; UNSPOOL_FIRST_SEED and UNSPOOL_SEEDS choose others.
"""

from __future__ import annotations

import os
from dataclasses import replace
from random import Random

import pytest

from tests import dwarf_writer as dwarf
from tests.cfi_maker import IMAGE_ADDRESS, Maker
from tests.cfi_tables import Compiled

FIRST_SEED = int(os.environ.get("UNSPOOL_FIRST_SEED", "0"))
SEEDS = int(os.environ.get("UNSPOOL_SEEDS", "1500"))
CIES = {
    ("x86_64", True): dwarf.X86_64_CIE,
    ("aarch64", True): dwarf.AARCH64_CIE,
    ("x86_64", False): dwarf.X86_64_DEBUG_CIE,
    ("aarch64", False): dwarf.AARCH64_DEBUG_CIE,
}
FORMATS = (dwarf.UDATA4, dwarf.UDATA8, dwarf.SDATA4, dwarf.SDATA8, dwarf.ABSPTR, dwarf.ULEB128)


def random_cie(random: Random, arch: str, is_eh_frame: bool) -> dwarf.CieSpec:
    spec = CIES[arch, is_eh_frame]
    letters = random.sample("LPSBG", random.randint(0, 5))
    if is_eh_frame:
        spec = replace(
            spec,
            augmentation="z" + "".join(random.sample(["R", *letters], len(letters) + 1)),
            pointer_encoding=random.choice([0, dwarf.PCREL]) | random.choice(FORMATS),
        )
    return replace(
        spec,
        version=random.choice([1, 1, 3, 4]),
        code_alignment=random.choice([1, 2, 4]),
        data_alignment=random.choice([-8, -8, -4, 8]),
        return_address_register=random.choice([spec.return_address_register] * 9 + [3]),
    )


def random_section(random: Random, arch: str, is_eh_frame: bool) -> dwarf.FrameSection:
    maker = Maker(random, arch)
    section = dwarf.FrameSection(is_eh_frame, IMAGE_ADDRESS + 0x8000 if is_eh_frame else 0)
    cie = section.cie(random_cie(random, arch, is_eh_frame))
    # No two start together: which of them holds is not for a test to say.
    for start in random.sample(range(IMAGE_ADDRESS + 0x1000, IMAGE_ADDRESS + 0x1080), random.randint(1, 7)):
        section.is_64bit = random.random() < 0.1
        if random.random() < 0.2:
            cie = section.cie(random_cie(random, arch, is_eh_frame))
        if random.random() < 0.05:
            section.terminator()
        program = [maker.instruction() for _ in range(random.randint(0, 8))]
        section.fde(cie, start, random.choice([0, 8, 0x10, 0x20, 0x80]), *program)
    return section


def damaged(random: Random, section: dwarf.FrameSection) -> None:
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(section.parts))
        kind = random.random()
        if kind < 0.6:
            section.parts[at] = random.choice([0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)])
        elif kind < 0.8:
            section.parts[at] ^= 1 << random.randrange(8)
        else:
            del section.parts[at:]
            if not section.parts:
                return


@pytest.mark.parametrize("is_damaged", [False, True], ids=["sound", "damaged"])
@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_core_and_slow_evaluator_read_the_same(arch: str, is_damaged: bool) -> None:
    with_rows = 0
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
        random = Random(f"{arch} {is_damaged} {seed}")
        sections = [random_section(random, arch, is_eh_frame) for is_eh_frame in (True, False)]
        sections = random.choice([sections, sections[:1], sections[1:]])
        if is_damaged:
            damaged(random, random.choice(sections))
        with_rows += check(arch, sections, f"UNSPOOL_FIRST_SEED={seed}")
    assert with_rows > SEEDS / 2


def check(arch: str, sections: list[dwarf.FrameSection], told: str) -> bool:
    """True when there is at least one row."""
    try:
        compiled = Compiled(*sections, arch=arch, image_address=IMAGE_ADDRESS)
        said = [compiled.says(address) for address in compiled.boundaries()]
        # (An FDE that claims nothing for itself is not run by the core: its problems stay unknown.)
        unread = [problem for problem in compiled.problems if problem[0] != "OVERLAP"]
        assert not unread or compiled.slow_problems, unread
    except AssertionError as error:
        raise AssertionError(told) from error
    return any(text != "nothing" for text in said)
