"""DWARF expressions spelled out for people, as in `breg7(rsp)+8; deref; plus_uconst 16`.

It only prints: the core evaluates them (core/src/expression.c). Codes and operands are those of DWARF 5,
section 7.7.1; the names are those of the standard without DW_OP_.
"""

from unspool.unwind.registers import REGISTER_NAMES

# Operand kinds: 1, 2, 4, 8 unsigned bytes; negative: as many signed ones; U and S: LEB128.
_U, _S = "U", "S"
_Operand = int | str
_OPERATIONS: dict[int, tuple[str, tuple[_Operand, ...]]] = {
    0x03: ("addr", (8,)),
    0x06: ("deref", ()),
    0x08: ("const1u", (1,)),
    0x09: ("const1s", (-1,)),
    0x0A: ("const2u", (2,)),
    0x0B: ("const2s", (-2,)),
    0x0C: ("const4u", (4,)),
    0x0D: ("const4s", (-4,)),
    0x0E: ("const8u", (8,)),
    0x0F: ("const8s", (-8,)),
    0x10: ("constu", (_U,)),
    0x11: ("consts", (_S,)),
    0x15: ("pick", (1,)),
    0x23: ("plus_uconst", (_U,)),
    0x28: ("bra", (-2,)),
    0x2F: ("skip", (-2,)),
    0x94: ("deref_size", (1,)),
    0x96: ("nop", ()),
}
_PLAIN = {
    0x12: "dup drop over",
    0x16: "swap rot xderef abs and div minus mod mul neg not or plus",
    0x24: "shl shr shra xor",
    0x29: "eq ge gt le lt ne",
}
for _first, _names in _PLAIN.items():
    _OPERATIONS |= {_first + n: (name, ()) for n, name in enumerate(_names.split())}
_OPERATIONS |= {0x30 + n: (f"lit{n}", ()) for n in range(32)}


def spelled_out(expression: bytes, arch: str) -> str:
    """The operations of an expression, separated by "; "; where it is damaged, it says so and ends."""
    operations = []
    position = 0
    try:
        while position < len(expression):
            text, position = _operation(expression, position, arch)
            operations.append(text)
    except IndexError:
        operations.append("(cut off)")
    return "; ".join(operations)


def register_name(number: int, arch: str) -> str:
    """A register's name by its DWARF number."""
    names = REGISTER_NAMES[arch]
    return names[number] if number < len(names) else f"register {number}"


def _operation(data: bytes, position: int, arch: str) -> tuple[str, int]:
    code = data[position]
    position += 1
    if 0x50 <= code <= 0x6F:
        return f"reg{code - 0x50}({register_name(code - 0x50, arch)})", position
    if 0x70 <= code <= 0x8F:
        offset, position = _operand(data, position, _S)
        return f"breg{code - 0x70}({register_name(code - 0x70, arch)}){offset:+d}", position
    if code == 0x92:
        number, position = _operand(data, position, _U)
        offset, position = _operand(data, position, _S)
        return f"bregx {number}({register_name(number, arch)}){offset:+d}", position
    if code not in _OPERATIONS:
        return f"(unknown operation {code:#x})", len(data)
    name, operands = _OPERATIONS[code]
    values = []
    for kind in operands:
        value, position = _operand(data, position, kind)
        values.append(str(value))
    return " ".join([name, *values]), position


def _operand(data: bytes, position: int, kind: _Operand) -> tuple[int, int]:
    if isinstance(kind, int):
        end = position + abs(kind)
        if end > len(data):
            raise IndexError
        return int.from_bytes(data[position:end], "little", signed=kind < 0), end
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            break
    if kind == _S and byte & 0x40:
        value -= 1 << shift
    return value, position
