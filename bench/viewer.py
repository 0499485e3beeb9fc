"""How fast the flame graph is in a browser, with 100,000 distinct stacks: `make bench-viewer`.

Method. A made-up profile (one process, 8 threads, 6,000 functions in 40 binaries, stacks of 12 to 90 frames)
is exported, and headless Chromium opens the file, 5 times, each time in a new context. First paint: from the
start of the navigation until the graph is drawn. Others: from the input event to the second frame after it,
for zooms into boxes all over the picture, a search, inverting and choosing a thread; medians and the slowest.
What it prints are figures of this run, beside whatever else runs there.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
from playwright.sync_api import Page, sync_playwright

from unspool.capture.samples import CodeFile, Event
from unspool.export import write
from unspool.profile import Profile
from unspool.profile.model import Process, Symbols, Thread
from unspool.profile.tree import Tree
from unspool.unwind import How

STACKS, FUNCTIONS, BINARIES, THREADS = 100_000, 6_000, 40, 8
PASSES = 5
CHROMIUM = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
# Resolves with the milliseconds until the frame after `action` has been drawn.
UNTIL_DRAWN = """(action) => new Promise((resolve) => {
    const start = performance.now();
    eval(action);
    const end = () => setTimeout(() => resolve(performance.now() - start));
    requestAnimationFrame(() => requestAnimationFrame(end));
})"""


def made_up_profile(stacks: int = STACKS) -> Profile:
    """Each stack is one node more than a stack that exists already, or several; deep ones are preferred."""
    chance = random.Random(1)
    parents, frames, depths, leaves = [-1], [0], [0], []
    while len(leaves) < stacks:
        node = (
            chance.randrange(len(parents))
            if chance.random() < 0.5
            else chance.randrange(min(len(parents), 500))
        )
        while depths[node] > 85:
            node = parents[node]
        for _ in range(chance.choice((1, 2, 3, 8) if depths[node] > 12 else (12,))):
            parents.append(node)
            frames.append(int(FUNCTIONS * chance.random() ** 3))
            depths.append(depths[node] + 1)
            node = len(parents) - 1
        leaves.append(node)
    count = len(parents)
    names = [
        f"library{i % BINARIES}::Type{i % 97}<int, std::less<int>>::function_{i}(int)"
        for i in range(FUNCTIONS)
    ]
    weights = (1e9 * np.random.default_rng(1).pareto(1.2, len(leaves))).clip(5e6, 1e11).astype(np.int64)
    return Profile(
        path="",
        meta={"command": "made-up --stacks 100000", "rate": 199},
        is_finished=True,
        events=[Event("cpu", "nanoseconds")],
        processes=[Process(1, None, "made-up", None, None, None)],
        threads=[Thread(0, i, f"thread-{i}", None, None, None) for i in range(THREADS)],
        binaries=[CodeFile(f"/usr/lib/library{i}.so", None, "x86_64") for i in range(BINARIES)],
        binary_process=np.full(BINARIES, -1, np.int32),
        binary_symbols=[Symbols("lines", None, "")] * BINARIES,
        lost=[],
        problems=[],
        sample_event=np.zeros(len(leaves), np.int32),
        sample_thread=np.arange(len(leaves), dtype=np.int32) % THREADS,
        sample_stack=np.array(leaves, np.int32),
        sample_weight=weights,
        sample_end=np.zeros(len(leaves), np.uint8),
        sample_flags=np.zeros(len(leaves), np.uint8),
        tree=Tree(np.array(parents, np.int32)),
        stack_frame=np.array(frames, np.int32),
        stack_how=np.full(count, How.CFI, np.uint8),
        frame_binary=(np.arange(FUNCTIONS) % BINARIES).astype(np.int32),
        frame_address=np.arange(FUNCTIONS, dtype=np.uint64) * np.uint64(64),
        frame_is_return=np.ones(FUNCTIONS, np.bool_),
        line_offsets=np.arange(FUNCTIONS + 1),
        line_function=np.arange(FUNCTIONS, dtype=np.int32),
        line_file=np.arange(FUNCTIONS, dtype=np.int32) % 500,
        line_number=np.arange(FUNCTIONS, dtype=np.int32) % 1000 + 1,
        functions=names,
        function_binary=(np.arange(FUNCTIONS) % BINARIES).astype(np.int32),
        function_is_named=np.ones(FUNCTIONS, np.bool_),
        files=[f"/src/file{i}.cc" for i in range(500)],
    )


def zooms(page: Page) -> list[float]:
    """Into the widest box of every second row, one after the other, then back to everything."""
    times = []
    for depth in range(2, 30, 2):
        x, y = page.evaluate(
            """(depth) => {
            const rows = viewer.graph.rows;
            const row = rows[Math.min(depth, rows.length - 1)];
            const box = row.reduce((widest, other) => (other.width > widest.width ? other : widest));
            const area = document.getElementById("graph").getBoundingClientRect();
            const left = Math.max(box.x, 0), right = Math.min(box.x + box.width, area.width);
            viewer.scroller.scrollTop = Math.max(box.depth * 21 - 200, 0);
            const y = area.top + box.depth * 21 + 8 - viewer.scroller.scrollTop;
            return [area.left + (left + right) / 2, y];
        }""",
            depth,
        )
        click = f"""document.getElementById("graph").dispatchEvent(
            new MouseEvent("click", {{ clientX: {x}, clientY: {y}, bubbles: true }}))"""
        times.append(page.evaluate(UNTIL_DRAWN, click))
    times.append(page.evaluate(UNTIL_DRAWN, "viewer.reset()"))
    return times


def measure(page: Page, path: Path) -> dict[str, list[float]]:
    page.goto(path.as_uri())
    page.wait_for_selector("main[aria-busy=false]")
    first = page.evaluate("performance.getEntriesByName('drawn')[0].startTime")
    return {
        "first paint": [first],
        "zoom": zooms(page),
        "search": [page.evaluate(UNTIL_DRAWN, "viewer.searchFor('function_1[0-9]*')")],
        "end of search": [page.evaluate(UNTIL_DRAWN, "viewer.searchFor('')")],
        "inverted": [page.evaluate(UNTIL_DRAWN, "viewer.invert(true)")],
        "zoom, inverted": zooms(page),
        "one thread": [
            page.evaluate(UNTIL_DRAWN, "viewer.invert(false); viewer.threadChoice = 't3'; viewer.select()")
        ],
    }


def main() -> None:
    profile = made_up_profile()
    depth = float(profile.tree.depth[profile.sample_stack].mean()) + 1
    print(
        f"{len(profile.sample_stack):,} distinct stacks of {depth:.0f} frames on average, "
        f"{len(profile.tree):,} nodes"
    )
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(sys.argv[1] if len(sys.argv) > 1 else f"{folder}/made-up.html")
        start = time.perf_counter()
        write(profile, path)
        print(f"export {time.perf_counter() - start:.2f} s, {path.stat().st_size / 1e6:.1f} MB")
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=CHROMIUM)
        print(f"Chromium {browser.version}, headless, 1400 x 900")
        all_times: dict[str, list[float]] = {}
        for _ in range(PASSES):
            context = browser.new_context(viewport={"width": 1400, "height": 900})
            for what, times in measure(context.new_page(), path).items():
                all_times.setdefault(what, []).extend(times)
            context.close()
        browser.close()
    print(f"{'milliseconds':16} {'median':>8} {'slowest':>8}")
    for what, times in all_times.items():
        print(f"{what:16} {median(times):8.0f} {max(times):8.0f}")


if __name__ == "__main__":
    main()
