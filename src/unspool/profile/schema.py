"""The tables and views of a recording: one SQLite file. docs/recording.md says what each column means.

A change that old readers would misread gets a new VERSION. Numbers of frames, stacks and so on are their
indices: they begin at 0 and leave none out.
"""

from unspool.unwind import How, StackEnd

APPLICATION_ID = 0x756E_7370  # "unsp"; PRAGMA application_id
VERSION = 1  # PRAGMA user_version

TABLES = {
    "meta": "key TEXT PRIMARY KEY, value",
    "events": "id INTEGER PRIMARY KEY, name TEXT NOT NULL, unit TEXT NOT NULL",
    "processes": """id INTEGER PRIMARY KEY, pid INTEGER NOT NULL, parent INTEGER, command TEXT NOT NULL,
        start_time INTEGER, end_time INTEGER, exit_status INTEGER""",
    "threads": """id INTEGER PRIMARY KEY, process INTEGER NOT NULL, tid INTEGER NOT NULL, name TEXT NOT NULL,
        end_time INTEGER, user_time INTEGER, system_time INTEGER""",
    "binaries": """id INTEGER PRIMARY KEY, kind TEXT NOT NULL, path TEXT NOT NULL, name TEXT NOT NULL,
        build_id TEXT, arch TEXT NOT NULL, image_address INTEGER NOT NULL, size INTEGER NOT NULL,
        mtime INTEGER NOT NULL, process INTEGER, symbols TEXT, debug_file TEXT, note TEXT""",
    "frames": """id INTEGER PRIMARY KEY, binary INTEGER NOT NULL, address INTEGER NOT NULL,
        is_return_address INTEGER NOT NULL, UNIQUE (binary, address, is_return_address)""",
    "functions": "id INTEGER PRIMARY KEY, name TEXT NOT NULL, raw_name TEXT, binary INTEGER",
    "files": "id INTEGER PRIMARY KEY, path TEXT NOT NULL",
    "lines": """frame INTEGER NOT NULL, depth INTEGER NOT NULL, function INTEGER NOT NULL, file INTEGER,
        line INTEGER, PRIMARY KEY (frame, depth)""",
    "stacks": """id INTEGER PRIMARY KEY, parent INTEGER, frame INTEGER NOT NULL, how INTEGER NOT NULL""",
    "samples": """time INTEGER NOT NULL, event INTEGER NOT NULL, thread INTEGER NOT NULL,
        stack INTEGER NOT NULL, weight INTEGER NOT NULL, stack_end INTEGER NOT NULL,
        flags INTEGER NOT NULL""",
    "lost": """time INTEGER NOT NULL, process INTEGER, thread INTEGER, reason TEXT NOT NULL,
        count INTEGER NOT NULL""",
    "problems": "process INTEGER, text TEXT NOT NULL",
    "hows": "id INTEGER PRIMARY KEY, name TEXT NOT NULL",
    "stack_ends": "id INTEGER PRIMARY KEY, name TEXT NOT NULL",
}
_WITHOUT_ROWID = ("meta", "lines")

# A thread's time counts in the first event that is measured in nanoseconds.
_TIME_EVENT = "(SELECT min(id) FROM events WHERE unit = 'nanoseconds')"
# Of the event's weight, which is added up once a query, not once a row.
_PERCENT = "round(100.0 * sum(weight) / max(total), 2) AS percent"
_TOTALS = "(SELECT event, sum(weight) AS total FROM samples GROUP BY event) AS totals"
_LEAVES = "SELECT event, stack, sum(weight) AS weight, count(*) AS samples FROM samples GROUP BY event, stack"

VIEWS = {
    # What is known of every frame: innermost function first; a frame without a name has one entry, too.
    "frame_names": """
    SELECT frames.id AS frame, coalesce(lines.depth, 0) AS depth, lines.function AS function_id,
        coalesce(functions.name, binaries.name || printf('+0x%x', frames.address)) AS function,
        binaries.name AS binary, files.path AS file, lines.line AS line
    FROM frames JOIN binaries ON binaries.id = frames.binary
        LEFT JOIN lines ON lines.frame = frames.id
        LEFT JOIN functions ON functions.id = lines.function
        LEFT JOIN files ON files.id = lines.file""",
    "function_self": f"""
    SELECT events.name AS event, function, binary, sum(weight) AS weight,
        {_PERCENT}, sum(samples) AS samples
    FROM ({_LEAVES}) AS leaves
        JOIN stacks ON stacks.id = leaves.stack
        JOIN frame_names ON frame_names.frame = stacks.frame AND frame_names.depth = 0
        JOIN events ON events.id = leaves.event
        JOIN {_TOTALS} ON totals.event = leaves.event
    GROUP BY leaves.event, function, binary
    ORDER BY leaves.event, weight DESC""",
    # A function that calls itself counts once a sample. Parents come before their children: whatever the file
    # holds, the recursion ends.
    "function_total": f"""
    WITH RECURSIVE path(event, leaf, weight, samples, node) AS (
        SELECT event, stack, weight, samples, stack FROM ({_LEAVES})
        UNION ALL
        SELECT event, leaf, weight, samples, parent FROM path JOIN stacks ON stacks.id = path.node
        WHERE parent < stacks.id)
    SELECT events.name AS event, function, binary, sum(weight) AS weight,
        {_PERCENT}, sum(samples) AS samples
    FROM (SELECT DISTINCT event, leaf, function, binary, weight, samples
            FROM path JOIN stacks ON stacks.id = path.node
                JOIN frame_names ON frame_names.frame = stacks.frame) AS once
        JOIN events ON events.id = once.event
        JOIN {_TOTALS} ON totals.event = once.event
    GROUP BY once.event, function, binary
    ORDER BY once.event, weight DESC""",
    "line_self": f"""
    SELECT events.name AS event, file, line, function, binary, sum(weight) AS weight,
        {_PERCENT}, sum(samples) AS samples
    FROM ({_LEAVES}) AS leaves
        JOIN stacks ON stacks.id = leaves.stack
        JOIN frame_names ON frame_names.frame = stacks.frame AND frame_names.depth = 0
        JOIN events ON events.id = leaves.event
        JOIN {_TOTALS} ON totals.event = leaves.event
    WHERE file IS NOT NULL
    GROUP BY leaves.event, file, line, function, binary
    ORDER BY leaves.event, weight DESC""",
    "thread_time": f"""
    SELECT processes.pid AS pid, threads.tid AS tid, threads.name AS name, processes.command AS command,
        user_time + system_time AS cpu_time, user_time, system_time, coalesce(sampled, 0) AS sampled,
        user_time + system_time - coalesce(sampled, 0) AS not_sampled, coalesce(samples, 0) AS samples
    FROM threads JOIN processes ON processes.id = threads.process
        LEFT JOIN (SELECT thread, sum(weight) AS sampled, count(*) AS samples FROM samples
            WHERE event = {_TIME_EVENT} GROUP BY thread) AS of_thread
            ON of_thread.thread = threads.id
    ORDER BY coalesce(cpu_time, sampled) DESC, threads.id""",
    "sample_ends": """
    SELECT events.name AS event, stack_ends.name AS stack_end, flags, count(*) AS samples,
        sum(weight) AS weight
    FROM samples JOIN events ON events.id = samples.event
        LEFT JOIN stack_ends ON stack_ends.id = samples.stack_end
    GROUP BY samples.event, samples.stack_end, flags
    ORDER BY samples.event, samples DESC""",
}


def statements() -> list[str]:
    """What makes an empty recording."""
    made = [
        f"CREATE TABLE {name} ({columns})" + (" WITHOUT ROWID" if name in _WITHOUT_ROWID else "")
        for name, columns in TABLES.items()
    ]
    made += [f"CREATE VIEW {name} AS{query}" for name, query in VIEWS.items()]
    for table, names in (("hows", How), ("stack_ends", StackEnd)):
        rows = ", ".join(f"({member.value}, '{member.name.lower()}')" for member in names)
        made.append(f"INSERT INTO {table} VALUES {rows}")
    return [*made, f"PRAGMA application_id = {APPLICATION_ID}", f"PRAGMA user_version = {VERSION}"]
