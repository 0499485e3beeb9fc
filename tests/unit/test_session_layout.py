"""What Python believes of the memory that it shares with agents is what core/src/agent/session.h says."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.compilers import run
from unspool.capture import session_layout as layout

CORE = Path(__file__).parents[2] / "core"
STRUCTS = {
    "struct session_header": layout.HEADER,
    "struct session_slot": layout.SLOT,
    "struct unspool_module": layout.MODULE,
    "struct session_modules": layout.MODULE_LIST,
}
SIZES = {
    "sizeof(struct session_area)": layout.AREA_SIZE,
    "offsetof(struct session_area, slots)": layout.SLOTS_OFFSET,
    "offsetof(struct session_area, modules_buffer)": layout.MODULE_LISTS_OFFSET,
    "offsetof(struct session_modules, module)": layout.MODULE_OFFSET,
    "SESSION_MAGIC": layout.MAGIC,
    "SESSION_VERSION": layout.VERSION,
    "SESSION_ALIGNMENT": layout.ALIGNMENT,
    "SESSION_AREAS": layout.AREAS,
    "SESSION_AREAS_OFFSET": layout.AREAS_OFFSET,
    "SESSION_SLOTS": layout.SLOTS,
    "SESSION_MODULES": layout.MODULES,
    "SESSION_MODULE_BUFFERS": layout.MODULE_BUFFERS,
    "SESSION_REFUSALS": layout.REFUSALS,
    "SESSION_LOST_REASONS": layout.LOST_REASONS,
    "SESSION_HEARTBEAT_LIMIT": layout.HEARTBEAT_LIMIT,
}
ENUMS = {
    "SESSION_": layout.SessionState,
    "SESSION_REFUSED_": layout.Refusal,
    "SESSION_AREA_": layout.AreaState,
    "SESSION_ORIGIN_": layout.Origin,
    "SESSION_NOTE_": layout.Note,
    "SESSION_LOST_": layout.LostReason,
    "SESSION_WISH_": layout.Wish,
    "SESSION_SLOT_": layout.SlotState,
}


def expected() -> dict[str, int]:
    """Constant expressions of C, and the values that Python believes in."""
    values = dict(SIZES)
    for name, dtype in {**STRUCTS, "struct session_area": layout.AREA_FIELDS}.items():
        assert dtype.fields is not None
        for field, (kind, offset, *_) in dtype.fields.items():
            values[f"offsetof({name}, {field})"] = offset
            values[f"sizeof((({name} *)0)->{field})"] = np.dtype(kind).itemsize
    values |= {f"sizeof({name})": dtype.itemsize for name, dtype in STRUCTS.items()}
    values |= {f"SESSION_{flag.name}": flag.value for flag in layout.SessionFlag}
    for prefix, enum in ENUMS.items():
        values |= {prefix + member.name: member.value for member in enum}
    return values


@pytest.fixture(scope="module")
def actual(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    folder = tmp_path_factory.mktemp("layout")
    source, program = folder / "layout.c", folder / "layout"
    prints = "".join(f'    printf("%llu\\n", (unsigned long long)({name}));\n' for name in expected())
    source.write_text(f'#include <stdio.h>\n#include "session.h"\nint main(void) {{\n{prints}}}\n')
    run("gcc", f"-I{CORE}/include", f"-I{CORE}/src/agent", "-o", program, source)
    output = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return dict(zip(expected(), map(int, output.split()), strict=True))


@pytest.mark.parametrize("name", expected())
def test_layout(name: str, actual: dict[str, int]) -> None:
    assert actual[name] == expected()[name]
