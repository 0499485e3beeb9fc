"""Headless Chromium for tests, with pages that may not ask for anything but their own file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, Page, expect, sync_playwright

_PATIENCE = 30_000  # milliseconds: the machine may have much else to do
_SWITCHES = [
    "--no-sandbox",  # Chromium's own does not work for root
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        expect.set_options(timeout=_PATIENCE)
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=_SWITCHES)
        yield browser
        browser.close()


@contextmanager
def opened(
    browser: Browser,
    path: Path,
    *,
    width: int = 1200,
    height: int = 700,
    colours: Literal["light", "dark"] = "light",
) -> Iterator[Page]:
    """The page of a flame graph, drawn. AssertionError at the end: it complained, failed, or asked for
    another file."""
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=colours)
    context.set_default_timeout(_PATIENCE)
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(f"dialog {dialog.message}"))
    page.on(
        "request", lambda request: complaints.append(request.url) if request.url != path.as_uri() else None
    )
    page.goto(path.as_uri())
    page.wait_for_selector("main[aria-busy=false]")
    yield page
    context.close()
    assert not complaints, complaints


def boxes(page: Page) -> list[dict[str, Any]]:
    """What is drawn, row by row: name ("" for several too narrow ones), depth, x, width, and the point of the
    window in its middle."""
    found: list[dict[str, Any]] = page.evaluate(
        """() => {
        const { graph, tree, profile, scroller } = viewer;
        const area = document.getElementById("graph").getBoundingClientRect();
        const top = area.top - scroller.scrollTop;
        return graph.rows.flat().map((box) => {
            const left = Math.max(box.x, 0), right = Math.min(box.x + box.width, area.width);
            return {
                name: box.node < 0 ? "" : placeName(profile, tree.place[box.node]),
                depth: box.depth, x: box.x, width: box.width, count: box.count,
                point: [area.left + (left + right) / 2, top + (box.depth + 0.5) * ROW],
            };
        });
    }"""
    )
    return found


def box_named(page: Page, name: str) -> dict[str, Any]:
    """The widest box of that name."""
    return max((box for box in boxes(page) if box["name"] == name), key=lambda box: float(box["width"]))


def rows(page: Page) -> list[list[str]]:
    """The names in each row, from the left."""
    found: list[list[str]] = []
    for box in boxes(page):
        found.extend([] for _ in range(box["depth"] + 1 - len(found)))
        found[box["depth"]].append(box["name"])
    return found


def point_at(page: Page, name: str) -> None:
    page.mouse.move(*box_named(page, name)["point"])


def click(page: Page, name: str) -> None:
    page.mouse.click(*box_named(page, name)["point"])
