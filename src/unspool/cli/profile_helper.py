"""The process that does for `unspool.profile()` what `unspool record` does for a command.

    python -m unspool.cli.profile_helper OPTIONS      JSON: pid, rate, block, folder

It talks to own_process.py in lines of JSON. First it writes {"session": PATH}, then it answers each request:
    {"do": "snapshot"}   {"path": a copy of the recording}
    {"do": "silence"}    {} once no more signals are sent
    {"do": "stop"}       {} once the recording is complete
or {"error": TEXT}. It ends when its input does, hence when the process that it watches ends in any way.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

from unspool.capture import CaptureError
from unspool.capture.blocklist import without_blocked
from unspool.capture.in_process import EVENTS, CaptureSettings, InProcessCapture
from unspool.profile import RecordingError, RecordingWriter
from unspool.profile.naming import name_again
from unspool.symbols import Symbolizer


class _Helper:
    def __init__(
        self, options: dict[str, Any], capture: InProcessCapture, block: re.Pattern[str] | None
    ) -> None:
        self._block = block
        self._pid = int(options["pid"])
        self._folder = Path(options["folder"])
        self._capture = capture
        self._writer: RecordingWriter | None = None
        self._snapshots = 0
        self._is_asked_to_stop = False
        self._symbolizer = Symbolizer()

    def run(self) -> None:
        """Until the input ends or a stop was answered. Raises nothing that is to be expected."""
        path = self._folder / "profile.unspool"
        self._capture.watch(self._pid)
        command = (
            Path(f"/proc/{self._pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        )
        meta: dict[str, str | int] = {
            "command": command.strip(),
            "rate": self._capture.settings.rate,
            "via": "in-process",
        }
        answer: dict[str, Any] = {}
        try:
            with RecordingWriter.create(path, meta, EVENTS) as self._writer:
                _say({"session": self._capture.path})
                threading.Thread(target=self._listen, name="requests", daemon=True).start()
                for happening in without_blocked(self._capture.happenings(), self._block):
                    self._writer.add(happening)
                self._writer.finish(self._symbolizer, self._capture.files.opened())
        except RecordingError as error:
            answer = {"error": str(error)}
            self._capture.close()
        if self._is_asked_to_stop or answer:
            _say(answer)
        else:  # the process has ended without it
            shutil.rmtree(self._folder, ignore_errors=True)

    def _listen(self) -> None:
        for line in sys.stdin:
            request = json.loads(line)["do"]
            if request == "stop":
                self._is_asked_to_stop = True
                break
            try:
                _say(self._silence() if request == "silence" else self._snapshot())
            except (RecordingError, sqlite3.Error, OSError) as error:
                _say({"error": str(error)})
        self._capture.stop()

    def _silence(self) -> dict[str, Any]:
        self._capture.silence()
        return {}

    def _snapshot(self) -> dict[str, Any]:
        """A copy of what has been recorded by now, with names."""
        assert self._writer is not None
        self._capture.catch_up()
        self._writer.commit()
        self._snapshots += 1
        path = self._folder / f"snapshot-{self._snapshots}.unspool"
        for older in self._folder.glob("snapshot-*.unspool"):
            older.unlink()
        with closing(sqlite3.connect(self._writer.path)) as recording, closing(sqlite3.connect(path)) as copy:
            recording.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
        name_again(str(path), self._symbolizer, (), lambda progress: None)
        return {"path": str(path)}


def _say(answer: dict[str, Any]) -> None:
    try:
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    except OSError:  # nobody is there any more
        os._exit(0)


def main() -> None:
    """See above."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        options = json.loads(sys.argv[1])
        block = None if options["block"] is None else re.compile(options["block"])
        capture = InProcessCapture(CaptureSettings(options["rate"]))
    except re.error as error:
        _say({"error": f"{options['block']!r} is no regular expression: {error}"})
    except CaptureError as error:
        _say({"error": str(error)})
    else:
        with closing(capture):
            _Helper(options, capture, block).run()


if __name__ == "__main__":
    main()
