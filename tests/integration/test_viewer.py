"""The flame graph's page in headless Chromium: what it shows and how it is used."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser import box_named, boxes, chromium, click, opened, point_at, rows
from tests.profile_maker import ProfileMaker
from tests.short_names import NAMES
from unspool.capture.samples import Event, Flag
from unspool.export import write
from unspool.profile import Profile
from unspool.profile.model import LostSamples
from unspool.unwind import StackEnd

MS = 1_000_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


def small_profile() -> ProfileMaker:
    """1,000 ms of samples: 600 parse (100 of it inlined skip), 250 render (a guess), 100 main, 50 cut."""
    maker = ProfileMaker(meta={"command": "app --fast", "rate": 199})
    main = maker.thread("main", pid=7, tid=7, command="app --fast", cpu_time=900 * MS)
    worker = maker.thread("worker", pid=7, tid=8, cpu_time=200 * MS)
    maker.sample(main, "_start@app | main@app:main.c:1 | parse@app:/src/parse.c:5", weight=10 * MS, times=30)
    maker.sample(main, "_start@app | main@app:main.c:1 | parse@app:/src/parse.c:6", weight=10 * MS, times=20)
    stack = "_start@app | main@app:main.c:1 | parse@app:/src/parse.c:7 / skip@app:skip.h:3"
    maker.sample(main, stack, weight=10 * MS, times=10)
    maker.sample(main, "_start@app | main@app:main.c:2 | ?render@libgl.so", weight=125 * MS, times=2)
    maker.sample(worker, "_start@app | main@app:main.c:3", weight=100 * MS)
    maker.sample(worker, "orphan@plugin.so", weight=50 * MS, end=StackEnd.NO_UNWIND_INFO)
    maker.lost.append(LostSamples(0, None, worker, "the ring was full", 3))
    return maker


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Iterator[Page]:
    yield from shown(browser, tmp_path, small_profile().profile())


def shown(browser: Browser, folder: Path, profile: Profile) -> Iterator[Page]:
    path = folder / "graph.html"
    write(profile, path)
    with opened(browser, path) as page:
        yield page


CUT = "[cut: nothing says how to go on, in plugin.so]"
ALL_ROWS = [
    ["all"],
    ["_start", CUT],
    ["main", "orphan"],
    ["parse", "render"],
    ["skip"],
]


def test_boxes_are_as_wide_as_their_time_and_the_heaviest_comes_first(page: Page) -> None:
    assert rows(page) == ALL_ROWS
    whole = box_named(page, "all")["width"]
    shares = {box["name"]: round(box["width"] / whole, 3) for box in boxes(page)}
    assert shares == {
        "all": 1.0,
        "_start": 0.95,
        CUT: 0.05,
        "main": 0.95,
        "orphan": 0.05,
        "parse": 0.6,
        "render": 0.25,
        "skip": 0.1,
    }


def test_the_header_says_how_certain_the_picture_is(page: Page) -> None:
    expect(page.locator("#command")).to_have_text("app --fast")
    expect(page.locator("#summary > span")).to_have_text(
        [
            "1.10 s of CPU time",
            "70.0 % complete",
            "25.0 % guessed",
            "5.00 % cut",
            "9.09 % of CPU time (not sampled)",
            "64 samples",
            "3 lost",
        ]
    )
    page.click("#truth")
    text = page.locator("#details-text").inner_text()
    assert f"{CUT}\t50.0 ms\t5.00 %" in text
    assert "of the CPU time by the kernel's count\t100 ms\t9.09 %" in text
    assert "frame pointer (a guess)" in text
    assert "the ring was full\t3" in text


def test_samples_that_say_more_than_the_kernel_are_told(browser: Browser, tmp_path: Path) -> None:
    maker = ProfileMaker()
    maker.sample(maker.thread("t", cpu_time=90 * MS), "main@app", weight=100 * MS)
    for page in shown(browser, tmp_path, maker.profile()):
        expect(page.locator("#summary")).to_contain_text("10.0 ms sampled beyond the kernel's count")
        expect(page.locator("#summary")).to_contain_text("100 % complete")


def test_pointing_at_a_box_tells_what_it_is(page: Page) -> None:
    point_at(page, "parse")
    tooltip = page.locator("#tooltip")
    expect(tooltip).to_contain_text("parse")
    expect(tooltip).to_contain_text("/usr/lib/app")
    facts = dict(zip(*(tooltip.locator(tag).all_inner_texts() for tag in ("dt", "dd")), strict=True))
    assert facts["total"] == "600 ms (60.0 %)"
    assert facts["self"] == "500 ms (50.0 %)"
    assert facts["in"] == "60 samples"
    assert tooltip.locator("dd").all_inner_texts()[3:6] == [
        "parse.c:5 50.0 %",
        "parse.c:6 33.3 %",
        "parse.c:7 16.7 %",
    ]
    assert facts["file"] == "/src/parse.c"
    assert facts["found by"] == "interrupted 100 %"
    expect(page.locator("#status")).to_have_text(
        "parse  parse.c:5  ·  600 ms  (60.0 %), self 500 ms  (50.0 %), 60 samples"
    )


def test_inlined_guessed_and_cut_are_told(page: Page) -> None:
    tooltip = page.locator("#tooltip")
    point_at(page, "skip")
    expect(tooltip).to_contain_text("inlined into its caller")
    point_at(page, "render")
    expect(tooltip.locator(".warning")).to_have_text("frame pointer (a guess) 100 %")
    point_at(page, CUT)
    expect(tooltip).to_contain_text("the stack was cut here")
    point_at(page, "main")
    expect(tooltip.locator(".warning")).to_have_count(0)


def colours_in(page: Page, name: str) -> int:
    """How many colours there are along the upper part of a box, where it has no text."""
    box = box_named(page, name)
    count: int = page.evaluate(
        """([x, y, width]) => {
        const copy = new OffscreenCanvas(width, 1).getContext("2d", { willReadFrequently: true });
        copy.drawImage(document.getElementById("graph"), -x, -y);
        return new Set(new Uint32Array(copy.getImageData(0, 0, width, 1).data.buffer)).size;
    }""",
        [round(box["x"]) + 8, box["depth"] * 21 + 2, round(box["width"]) - 20],
    )
    return count


def test_a_guess_is_hatched_and_a_proved_frame_is_not(page: Page) -> None:
    assert colours_in(page, "main") == 1
    assert colours_in(page, "render") > 1


def test_a_stack_that_is_doubtful_as_a_whole_is_hatched(browser: Browser, tmp_path: Path) -> None:
    maker = ProfileMaker()
    thread = maker.thread("main")
    maker.sample(thread, "main@app | fine@app", weight=3)
    maker.sample(thread, "main@app | loading@app", weight=1, flags=Flag.NO_TABLE_YET)
    for page in shown(browser, tmp_path, maker.profile()):
        assert [colours_in(page, name) > 1 for name in ("fine", "loading", "main")] == [False, True, True]
        facts = page.evaluate("viewer.tree.guessed.join()")
        assert facts == "1,1,0,1"  # all, main, fine, loading
        point_at(page, "main")
        expect(page.locator("#tooltip .warning")).to_have_text("25.0 % (libraries changed meanwhile)")
        page.keyboard.press("i")
        assert [colours_in(page, name) > 1 for name in ("fine", "loading")] == [False, True]
        page.click("#truth")
        expect(page.locator("#details-text")).to_contain_text("a library's unwind table was not there yet")


def test_a_click_zooms_and_escape_goes_back(page: Page) -> None:
    click(page, "parse")
    assert rows(page) == [["all"], ["_start"], ["main"], ["parse"], ["skip"]]
    width = page.evaluate("viewer.graph.width")
    assert box_named(page, "parse")["width"] == pytest.approx(width)
    assert box_named(page, "skip")["width"] == pytest.approx(width / 6)
    click(page, "skip")
    assert box_named(page, "skip")["width"] == pytest.approx(width)
    page.keyboard.press("Escape")
    assert box_named(page, "parse")["width"] == pytest.approx(width)
    page.keyboard.press("Escape")
    assert rows(page) == ALL_ROWS
    click(page, "parse")
    page.click("#reset")
    assert rows(page) == ALL_ROWS
    expect(page.locator("#reset")).to_be_hidden()


def test_a_click_on_a_caller_zooms_out_to_it(page: Page) -> None:
    click(page, "skip")
    click(page, "main")
    assert rows(page)[3] == ["parse", "render"]
    click(page, "all")
    assert rows(page) == ALL_ROWS


def test_the_keyboard_does_it_all(page: Page) -> None:
    page.keyboard.press("Tab")  # somewhere in the page: the graph answers from there, too
    page.locator("#graph").focus()
    status = page.locator("#status")
    for key, name in [
        ("ArrowDown", "all"),
        ("ArrowDown", "_start"),
        ("ArrowRight", CUT),
        ("ArrowDown", "orphan"),
        ("ArrowLeft", "main"),
        ("ArrowDown", "parse"),
        ("ArrowRight", "render"),
        ("ArrowRight", "render"),
        ("ArrowUp", "main"),
    ]:
        page.keyboard.press(key)
        expect(status.locator("b")).to_have_text(name)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert rows(page)[-1] == ["skip"] and rows(page)[3] == ["parse"]
    expect(status.locator("b")).to_have_text("parse")
    page.keyboard.press("0")
    assert rows(page) == ALL_ROWS
    page.keyboard.press("?")
    expect(page.locator("#details")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#details")).to_be_hidden()
    page.keyboard.press("i")
    assert rows(page)[1] == ["parse", "render", "skip", "main", "orphan"]


def test_controls_have_names_and_the_status_is_announced(page: Page) -> None:
    for role, name in [
        ("application", "Flame graph"),
        ("searchbox", "Search functions"),
        ("radio", "Inverted"),
        ("combobox", "Process or thread"),
        ("combobox", "Grouping"),
        ("button", "Light or dark"),
        ("button", "Help"),
    ]:
        expect(page.get_by_role(role, name=name)).to_have_count(1)  # type: ignore[arg-type]
    assert page.locator("#status").get_attribute("aria-live") == "polite"
    assert page.evaluate(
        "[...document.querySelectorAll('button')].every((b) => b.textContent || b.ariaLabel)"
    )


def test_a_search_tells_the_share_of_the_time_with_a_match(page: Page) -> None:
    matched = page.locator("#matched")
    page.keyboard.press("/")
    for text, share in [
        ("parse|skip", "60.0 %"),
        ("SKIP", "0 %"),  # with a capital letter it is taken as it is
        ("^libgl", "25.0 %"),  # a binary
        ("main", "95.0 %"),
        ("p.*e$", "60.0 %"),
        ("(", "no regex"),
    ]:
        page.locator("#search").fill(text)
        expect(matched).to_have_text(share)
    page.keyboard.press("Escape")
    expect(matched).to_have_text("")
    expect(page.locator("#search")).to_have_value("")


def colour_at(page: Page, box: dict[str, Any]) -> list[int]:
    """Red, green, blue in the middle of a box without text."""
    colour: list[int] = page.evaluate(
        """([x, y]) => {
        const copy = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
        copy.drawImage(document.getElementById("graph"), -x, -y);
        return [...copy.getImageData(0, 0, 1, 1).data.slice(0, 3)];
    }""",
        [round(box["x"] + box["width"] / 2), box["depth"] * 21 + 10],
    )
    return colour


def test_a_match_that_is_too_narrow_to_be_drawn_is_seen(browser: Browser, tmp_path: Path) -> None:
    maker = ProfileMaker()
    thread = maker.thread("main")
    for number in range(10_000):
        maker.sample(thread, f"left@app | light{number}@app", weight=2)
        maker.sample(thread, f"right@app | dark{number}@app | deep@app")
    for page in shown(browser, tmp_path, maker.profile()):
        left, right = (box for box in boxes(page) if not box["name"])
        for text, seen in [("^light7777$", left), ("^deep$", right), ("^none$", None)]:
            page.fill("#search", text)
            expect(page.locator("#matched")).not_to_have_text("")
            page.evaluate("new Promise(requestAnimationFrame)")
            page.evaluate("new Promise(requestAnimationFrame)")
            found = [box for box in (left, right) if colour_at(page, box) == [0xE6, 0x4C, 0xC1]]
            assert found == ([seen] if seen else [])


def test_inverted_shows_where_time_was_spent_and_then_the_callers(page: Page) -> None:
    page.get_by_text("Inverted").click()
    assert rows(page) == [
        ["all"],
        ["parse", "render", "skip", "main", "orphan"],
        ["main", "main", "parse", "_start", CUT],
        ["_start", "_start", "main"],
        ["_start"],
    ]
    assert box_named(page, "parse")["width"] == pytest.approx(page.evaluate("viewer.graph.width") / 2)
    point_at(page, "parse")
    expect(page.locator("#tooltip dd").first).to_have_text("500 ms (50.0 %)")


def test_one_thread_or_process(browser: Browser, tmp_path: Path) -> None:
    maker = small_profile()
    maker.sample(
        maker.thread("other", pid=9, tid=9, command="other", cpu_time=None), "go@other", weight=500 * MS
    )
    for page in shown(browser, tmp_path, maker.profile()):
        options = page.locator("#thread option").all_inner_texts()
        assert options == [
            "All 3 threads",
            "its threads together - 66.7 %",
            "main (7) - 56.7 %",
            "worker (8) - 10.0 %",
            "other (9) - 33.3 %",
        ]
        page.select_option("#thread", label="worker (8) - 10.0 %")
        assert rows(page) == [["all"], ["_start", CUT], ["main", "orphan"]]
        expect(page.locator("#summary")).to_contain_text("200 ms of CPU time")
        page.select_option("#thread", label="its threads together - 66.7 %")
        assert rows(page) == ALL_ROWS
        page.select_option("#thread", label="All 3 threads")
        assert rows(page)[1] == ["_start", "go", CUT]
        expect(page.locator("#summary")).to_contain_text("1.50 s sampled")  # one thread's time is not known
        page.select_option("#group", "process")
        assert rows(page)[1] == ["app --fast (7)", "other (9)"]
        page.select_option("#group", "thread")
        assert rows(page)[2] == ["main (7)", "worker (8)", "other (9)"]
        assert rows(page)[3] == ["_start", "_start", CUT, "go"]


def test_threads_are_counted_as_in_the_report_and_those_without_samples_not_offered(
    browser: Browser, tmp_path: Path
) -> None:
    maker = small_profile()
    maker.thread("idle", pid=7, tid=9, cpu_time=0)
    maker.thread("(not recorded)", pid=7, tid=-1, cpu_time=5 * MS)
    maker.thread("perf-exec", pid=6, tid=6, command="perf-exec")
    for page in shown(browser, tmp_path, maker.profile()):
        assert page.locator("#thread option").all_inner_texts() == [
            "All 4 threads",
            "main (7) - 85.0 %",
            "worker (8) - 15.0 %",
        ]


def test_several_events(browser: Browser, tmp_path: Path) -> None:
    maker = ProfileMaker(events=[Event("cpu", "nanoseconds"), Event("faults", "count")])
    thread = maker.thread("main", cpu_time=10 * MS)
    maker.sample(thread, "main@app | compute@app", weight=10 * MS)
    maker.sample(thread, "main@app | touch@app", weight=1234, event=1)
    for page in shown(browser, tmp_path, maker.profile()):
        assert rows(page)[2] == ["compute"]
        page.select_option("#event", label="faults (count)")
        assert rows(page)[2] == ["touch"]
        expect(page.locator("#summary")).to_contain_text("1,234 sampled")
        expect(page.locator("#summary")).not_to_contain_text("not sampled")


def test_light_and_dark_follow_the_system_until_chosen(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "graph.html"
    write(small_profile().profile(), path)
    with opened(browser, path, colours="dark") as page:
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.emulate_media(color_scheme="light")
        expect(page.locator("html")).to_have_attribute("data-theme", "light")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark
        page.keyboard.press("t")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        page.emulate_media(color_scheme="dark")
        page.emulate_media(color_scheme="light")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"  # chosen


def test_an_empty_profile_says_so(browser: Browser, tmp_path: Path) -> None:
    for page in shown(browser, tmp_path, ProfileMaker().profile()):
        expect(page.locator("#message")).to_have_text("There are no samples here.")
        expect(page.locator("#summary")).not_to_contain_text("complete")
        page.keyboard.press("i")
        page.click("#truth")


def test_an_empty_profile_says_why(browser: Browser, tmp_path: Path) -> None:
    maker = ProfileMaker(problems=[(None, "no samples: give a higher rate")])
    maker.thread("main", cpu_time=MS)
    for page in shown(browser, tmp_path, maker.profile()):
        words = "There are no samples here. no samples: give a higher rate"
        expect(page.locator("#message")).to_have_text(words)


@pytest.mark.parametrize(
    ("seconds", "shown_length"), [("1.5", "1.50 s long · "), ("nan", ""), ("-1", ""), ("x", "")]
)
def test_facts_that_can_not_be_are_left_out(
    seconds: str, shown_length: str, browser: Browser, tmp_path: Path
) -> None:
    maker = ProfileMaker(meta={"seconds": seconds, "started": "never", "rate": 199})
    for page in shown(browser, tmp_path, maker.profile()):
        expect(page.locator("#when")).to_have_text(f"{shown_length}199 Hz")


def test_a_recording_that_was_not_finished_is_told(browser: Browser, tmp_path: Path) -> None:
    profile = replace(small_profile().profile(), is_finished=False)
    for page in shown(browser, tmp_path, profile):
        page.click("#truth")
        expect(page.locator("#details-text")).to_contain_text("The recording was not finished")


EVIL = [
    "</script><script>document.title='broken'</script>",
    "<img src=x onerror=\"document.title='broken'\">",
    "<!-- <script>",
    "{{profile}} & \u2028 \0 \x1b[31m \udc80 \u202e",
    "'\"`${document.title='broken'}",
]


def test_names_are_text_and_nothing_else(browser: Browser, tmp_path: Path) -> None:
    maker = ProfileMaker(meta={"command": EVIL[0]})
    for number, name in enumerate(EVIL):
        maker.binary_paths[f"binary{number}"] = f"/{name}"
        thread = maker.thread(name, pid=number, tid=number, command=name)
        maker.sample(thread, f"{name}@binary{number}", end=StackEnd.LOOP, weight=10)
        maker.lost.append(LostSamples(0, None, None, name, 1))
        maker.problems.append((None, name))
    for page in shown(browser, tmp_path, maker.profile()):
        page.select_option("#group", "thread")
        for name in EVIL[:3]:
            point_at(page, name)
            expect(page.locator("#tooltip h3")).to_have_text(name)
        point_at(page, "{{profile}} & \\u2028 \\x00 \\x1b[31m \\udc80 \\u202e")
        page.fill("#search", "script")
        page.click("#truth")
        assert EVIL[0] in page.locator("#details-text").inner_text()
        assert page.title() == f"{EVIL[0]} - unspool"
        assert page.locator("img").count() == 0
        assert page.locator("script").count() == 1  # the profile's own has been read and removed


def test_the_policy_stops_whatever_markup_gets_in(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "graph.html"
    write(small_profile().profile(), path)
    text = path.read_text().replace("<main", "<script>document.title='broken'</script><main", 1)
    path.write_text(text)
    with pytest.raises(AssertionError, match="Content Security Policy"), opened(browser, path) as page:
        assert page.title() == "app --fast - unspool"


def test_a_deep_stack_scrolls(browser: Browser, tmp_path: Path) -> None:
    maker = ProfileMaker()
    maker.sample(maker.thread("main"), " | ".join(f"f{i}@app" for i in range(4096)))
    for page in shown(browser, tmp_path, maker.profile()):
        page.locator("#graph").focus()
        page.evaluate("viewer.scroller.scrollTop = 1e9")
        x, y = box_named(page, "f4095")["point"]
        assert 0 < y < 700
        page.mouse.move(x, y)
        expect(page.locator("#tooltip h3")).to_have_text("f4095")
        page.mouse.click(x, y)
        assert 0 < box_named(page, "f4095")["point"][1] < 700


def test_narrow_boxes_are_drawn_as_one_and_a_click_widens_them(browser: Browser, tmp_path: Path) -> None:
    maker = ProfileMaker()
    thread = maker.thread("main")
    maker.sample(thread, "main@app | heavy@app", weight=10_000)
    for number in range(5000):
        maker.sample(thread, f"main@app | light{number}@app")
    for page in shown(browser, tmp_path, maker.profile()):
        _, _, heavy, many = boxes(page)
        assert (heavy["name"], many["name"], many["count"]) == ("heavy", "", 5000)
        assert many["width"] == pytest.approx(heavy["width"] / 2)
        page.mouse.move(*many["point"])
        expect(page.locator("#tooltip")).to_have_text("5,000 narrow boxes, 5.00 µs in all")
        page.mouse.click(*many["point"])
        assert boxes(page)[2]["count"] == 5000
        page.evaluate("viewer.showView({start: 14_000, end: 14_100})")
        assert len([box for box in boxes(page) if box["name"].startswith("light")]) in (100, 101)


def random_profile(seed: int) -> Profile:
    """With recursion, inlined calls, guesses, cut stacks, several threads."""
    chance = random.Random(seed)
    maker = ProfileMaker()
    threads = [maker.thread(f"t{i}", pid=i % 2, tid=i) for i in range(4)]
    names = [f"f{i}@lib{i % 3}" for i in range(12)]
    for _ in range(300):
        frames = []
        for _ in range(chance.randrange(1, 9)):
            inlined = [chance.choice(names) for _ in range(chance.choice((0, 0, 1, 2)))]
            physical = chance.choice(names)
            binary = physical.split("@")[1]
            guess = "?" if chance.random() < 0.05 else ""
            frames.append(
                " / ".join([guess + physical, *(f"{name.split('@')[0]}@{binary}" for name in inlined)])
            )
        end = StackEnd.LOOP if chance.random() < 0.1 else StackEnd.ROOT
        maker.sample(chance.choice(threads), " | ".join(frames), weight=chance.randrange(1, 1000), end=end)
    return maker.profile()


# By function: self and total weights (recursion counted once), and in the inverted tree the first row.
SUMS = """() => {
    const { profile, calls } = viewer;
    const count = profile.functions.length;
    const functionOf = (tree, node) => profile.placeFunction[tree.place[node]] ?? -1; // -1: no code
    const [selfs, totals, inverted] = [0, 1, 2].map(() => new Array(count).fill(0));
    const walk = (node, above) => {
        const f = functionOf(calls, node);
        if (f >= 0) selfs[f] += calls.self[node];
        if (f >= 0 && !above.has(f)) totals[f] += calls.total[node];
        for (const child of calls.children(node)) walk(child, new Set([...above, f]));
    };
    walk(0, new Set());
    const up = new InvertedTree(calls);
    for (const child of up.children(0)) inverted[functionOf(up, child)] += up.total[child];
    return { selfs, totals, inverted, guessed: calls.guessed.reduce((sum, weight) => sum + weight, 0) };
}"""


@pytest.mark.parametrize("seed", range(3))
def test_the_trees_sums_are_the_profiles(seed: int, browser: Browser, tmp_path: Path) -> None:
    profile = random_profile(seed)
    for page in shown(browser, tmp_path, profile):
        for choice in ("all", "p1", "t0"):
            page.evaluate("(choice) => { viewer.threadChoice = choice; viewer.select(); }", choice)
            chosen = {
                "all": np.ones(len(profile.sample_thread), np.bool_),
                "p1": profile.sample_process == 1,
                "t0": profile.sample_thread == 0,
            }[choice]
            for grouping in ("none", "process", "thread"):
                page.evaluate("(grouping) => { viewer.grouping = grouping; viewer.select(); }", grouping)
                sums = page.evaluate(SUMS)
                assert sums["selfs"] == profile.self_weights(selected=chosen).tolist()
                assert sums["totals"] == profile.total_weights(selected=chosen).tolist()
                assert sums["inverted"] == sums["selfs"]


def test_names_are_shortened_to_what_still_says_which_function_it_is(page: Page) -> None:
    found = page.evaluate("(names) => names.map(shorterNames)", list(NAMES))
    assert dict(zip(NAMES, found, strict=True)) == NAMES


def test_shares_and_weights_are_written_as_people_read_them(page: Page) -> None:
    shares = page.evaluate(
        "[[0, 5], [1, 0], [1, 1e6], [1, 3], [0.999951, 1], [0.99999, 1], [5, 5]].map((x) => shareText(...x))"
    )
    assert shares == ["0 %", "-", "< 0.01 %", "33.3 %", "> 99.99 %", "> 99.99 %", "100 %"]
    weights = page.evaluate(
        "[[0, 'nanoseconds'], [950, 'nanoseconds'], [1.5e9, 'nanoseconds'], [9e12, 'nanoseconds'],"
        " [999.6e6, 'nanoseconds'], [99.96e6, 'nanoseconds'],"
        " [2048, 'bytes'], [1234567, 'count']].map((x) => weightText(...x))"
    )
    assert weights == ["0", "950 ns", "1.50 s", "2.50 h", "1.00 s", "100 ms", "2.00 KiB", "1,234,567"]
