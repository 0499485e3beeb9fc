"""Makes a symcache from a file with DWARF sections, in a process of its own, and writes it to stdout.

    python symcache_child.py DESCRIPTOR MEMORY SECONDS [FOLDER...]

Damaged DWARF can make symbolic panic, take all memory or run for ever; here that ends this process only.
Runs as a script: it may import nothing of unspool, which would cost more time than most files take. For the
same reason Python may be started without its site module (-S): then the folders are to import from.
"""

import os
import resource
import shutil
import sys


def main() -> None:
    descriptor, memory, seconds = (int(argument) for argument in sys.argv[1:4])
    sys.path.extend(sys.argv[4:])
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from symbolic.debuginfo import Archive
    from symbolic.exceptions import SymbolicError

    try:
        for file in Archive.open(f"/proc/self/fd/{descriptor}").iter_objects():
            symcache = file.make_symcache()
            shutil.copyfileobj(symcache.open_stream(), sys.stdout.buffer)  # type: ignore[no-untyped-call]
            break
        sys.stdout.buffer.flush()
    except (SymbolicError, LookupError, MemoryError, OSError) as problem:
        print((str(problem) or type(problem).__name__).splitlines()[0], file=sys.stderr)
        sys.stderr.flush()
        os._exit(1)


if __name__ == "__main__":
    main()
