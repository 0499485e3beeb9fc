"""A flame graph as one HTML file: the page, its style and its script from viewer/, and the profile in it.

The file needs nothing else: no network, no other file. Its content security policy allows no script but its
own, so that no name in a profile can become one; the script puts names into the page as text only.

The profile is gzip in base64: a uint32 (little-endian) with the length of a JSON object, the object, zeros up
to a multiple of 8, then arrays, each beginning at a multiple of 8 and little-endian. The object's "arrays"
lists them: [name, type (u1, i4, f8), length]. viewer/data.js reads it.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import re
import struct
from collections import Counter
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unspool.capture.samples import FLAGS, Flag
from unspool.export.leaves import COMPRESSION, Leaves, binary_name, inlined_lines, printable
from unspool.profile import Profile
from unspool.unwind import How

_SCRIPTS = ("data.js", "names.js", "trees.js", "colours.js", "graph.js", "panels.js", "viewer.js")
_ALIGNMENT = 8
_TYPES = {"u1": np.uint8, "i4": np.int32, "f8": np.float64}
_UNFINISHED = "The recording was not finished when this was made: samples and names may be missing."
_LONGEST_NAME = 10_000  # characters that are kept of a name


def flame_graph(profile: Profile) -> bytes:
    """The whole HTML file, UTF-8."""
    viewer = files("unspool.export") / "viewer"
    scripts = [(viewer / name).read_text("utf-8") for name in _SCRIPTS]
    script = "\n".join(['"use strict";', *scripts])
    style = (viewer / "style.css").read_text("utf-8")
    parts = {
        "policy": f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}",
        "title": html.escape(f"{_command(profile)} - unspool"),
        "style": style,
        "script": script,
        "profile": base64.b64encode(gzip.compress(_packed(profile), COMPRESSION, mtime=0)).decode(),
    }
    page = (viewer / "page.html").read_text("utf-8")
    return re.sub(r"{{(\w+)}}", lambda match: parts[match[1]], page).encode()


def _hash(text: str) -> str:
    """As a source of a content security policy (https://www.w3.org/TR/CSP3/)."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _packed(profile: Profile) -> bytes:
    leaves = Leaves.of(profile)
    arrays = {**_stack_arrays(profile), **_line_arrays(profile), **_leaf_arrays(leaves)}
    data = {
        **_description(profile),
        "marks": leaves.marks,
        "depth": int(profile.tree.depth.max(initial=0)) + 1,
        "arrays": [[name, kind, len(array)] for name, (kind, array) in arrays.items()],
    }
    text = json.dumps(data, separators=(",", ":")).encode()  # ASCII: lone surrogates are escaped
    pieces = [struct.pack("<I", len(text)) + text]
    for kind, array in arrays.values():
        pieces.append(array.astype(np.dtype(_TYPES[kind]).newbyteorder("<")).tobytes())
    return b"".join(piece + bytes(-len(piece) % _ALIGNMENT) for piece in pieces)


_Arrays = dict[str, tuple[str, NDArray[Any]]]


def _stack_arrays(profile: Profile) -> _Arrays:
    """stackUp: a node's number minus its caller's, which compresses better than the caller's."""
    nodes = np.arange(len(profile.tree))
    return {
        "stackUp": ("i4", nodes - profile.stack_parent),
        "stackFrame": ("i4", profile.stack_frame),
        "stackHow": ("u1", profile.stack_how),
    }


def _line_arrays(profile: Profile) -> _Arrays:
    """A place is a function in a binary, inlined or not: what boxes are merged by."""
    counts = np.diff(profile.line_offsets)
    binary = np.repeat(profile.frame_binary, counts)
    in_binary = profile.line_function * np.int64(len(profile.binaries)) + binary
    keys, line_place = np.unique(in_binary * 2 + inlined_lines(profile), return_inverse=True)
    function, place_binary = np.divmod(keys // 2, max(len(profile.binaries), 1))
    return {
        "lineOffsets": ("i4", profile.line_offsets),
        "linePlace": ("i4", line_place),
        "lineFile": ("i4", profile.line_file),
        "lineNumber": ("i4", profile.line_number),
        "placeFunction": ("i4", function),
        "placeBinary": ("i4", place_binary),
        "placeInlined": ("u1", keys % 2),
    }


def _leaf_arrays(leaves: Leaves) -> _Arrays:
    return {
        "leafEvent": ("i4", leaves.event),
        "leafThread": ("i4", leaves.thread),
        "leafStack": ("i4", leaves.stack),
        "leafWeight": ("f8", leaves.weight),
        "leafSamples": ("f8", leaves.samples),
        "leafFlags": ("u1", leaves.flags),
        "leafVerdict": ("u1", leaves.verdict),
        "leafMark": ("i4", leaves.mark),
    }


def _description(profile: Profile) -> dict[str, object]:
    return {
        "command": _command(profile),
        "started": str(profile.meta.get("started", "")),
        "duration": profile.duration or 0,
        "rate": str(profile.meta.get("rate", "")),
        "events": [{"name": _text(event.name), "unit": _text(event.unit)} for event in profile.events],
        "timeEvent": profile.time_event,
        "binaries": [
            {"name": _text(binary_name(profile, i)), "path": _text(binary.path), "kind": binary.kind.value}
            for i, binary in enumerate(profile.binaries)
        ],
        "functions": [_text(name) for name in profile.functions],
        "files": [_text(path) for path in profile.files],
        "processes": [
            {"pid": process.pid, "command": _text(process.command)} for process in profile.processes
        ],
        "threads": [
            {"process": thread.process, "tid": thread.tid, "name": _text(thread.name), "cpu": thread.cpu_time}
            for thread in profile.threads
        ],
        "hows": [how.name.lower().replace("_", " ") for how in sorted(How)],
        "flags": {int(flag): words for flag, words in FLAGS.items()},
        "doubtful": int(Flag.STALE_MODULES | Flag.NO_TABLE_YET),  # these make every frame of a stack a guess
        "lost": _lost(profile),
        "problems": [
            *([] if profile.is_finished else [_UNFINISHED]),
            *dict.fromkeys(_text(text) for _, text in profile.problems),
        ],
    }


def _lost(profile: Profile) -> list[dict[str, object]]:
    """By thread (-1: not known) and reason."""
    counts = Counter[tuple[int, str]]()
    for lost in profile.lost:
        counts[-1 if lost.thread is None else lost.thread, _text(lost.reason)] += lost.count
    return [{"thread": thread, "reason": reason, "count": n} for (thread, reason), n in counts.most_common()]


def _text(text: str) -> str:
    return printable(text if len(text) <= _LONGEST_NAME else text[:_LONGEST_NAME] + "…")


def _command(profile: Profile) -> str:
    command = profile.meta.get("command") or (profile.processes[0].command if profile.processes else "")
    return _text(str(command)) or "profile"
