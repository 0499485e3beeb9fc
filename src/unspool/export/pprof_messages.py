"""The messages of pprof's format, as google/pprof documents it in proto/profile.proto.

They are declared here and not compiled from a .proto file: such code fits one version of the protobuf package
only. Names and numbers are the format's; what unspool does not write is left out.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

Message: TypeAlias = Any  # its fields are known at run time only

_PACKAGE = "perftools.profiles"

# Message -> fields in order of their numbers, which begin at 1; None: not written. "*": repeated.
_MESSAGES: dict[str, list[str | None]] = {
    "Profile": [
        "*ValueType sample_type",
        "*Sample sample",
        "*Mapping mapping",
        "*Location location",
        "*Function function",
        "*string string_table",
        None,  # drop_frames
        None,  # keep_frames
        "int64 time_nanos",
        "int64 duration_nanos",
        "ValueType period_type",
        "int64 period",
        "*int64 comment",
        "int64 default_sample_type",
    ],
    "ValueType": ["int64 type", "int64 unit"],
    "Sample": ["*uint64 location_id", "*int64 value", "*Label label"],
    "Label": ["int64 key", "int64 str", "int64 num", "int64 num_unit"],
    "Mapping": [
        "uint64 id",
        "uint64 memory_start",
        "uint64 memory_limit",
        "uint64 file_offset",
        "int64 filename",
        "int64 build_id",
        "bool has_functions",
        "bool has_filenames",
        "bool has_line_numbers",
        "bool has_inline_frames",
    ],
    "Location": ["uint64 id", "uint64 mapping_id", "uint64 address", "*Line line"],
    "Line": ["uint64 function_id", "int64 line"],
    "Function": ["uint64 id", "int64 name", "int64 system_name", "int64 filename"],
}


def new_profile() -> Message:
    """An empty Profile message; messages within it are made by its add() methods."""
    file = descriptor_pb2.FileDescriptorProto(name="profile.proto", package=_PACKAGE, syntax="proto3")
    for message, fields in _MESSAGES.items():
        declared = file.message_type.add(name=message)
        for number, field in enumerate(fields, 1):
            if field is not None:
                _declare(declared, number, field)
    pool = descriptor_pool.DescriptorPool()  # its own: another part of the program may know the format, too
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Profile"))()


def _declare(message: descriptor_pb2.DescriptorProto, number: int, field: str) -> None:
    kind, name = field.lstrip("*").split()
    types = descriptor_pb2.FieldDescriptorProto
    declared = message.field.add(name=name, number=number)
    declared.label = types.LABEL_REPEATED if field.startswith("*") else types.LABEL_OPTIONAL
    if kind in _MESSAGES:
        declared.type = types.TYPE_MESSAGE
        declared.type_name = f".{_PACKAGE}.{kind}"
    else:
        declared.type = types.Type.Value(f"TYPE_{kind.upper()}")
