"""Every screen, in both themes and both widths: drawn, quiet, and fit for people who do not see or point."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.report import samples
from tests.hosts.report.conftest import Visit

SCREENS = {
    "overview": "Turn by turn",
    "overview?turn=2": "the model",
    "lanes": "Every block, call by call",
    "prompt/20": "The prompt, as sent",
    "left": "What left, and why",
    "cost": "Cost so far, and without ctxvc",
    "scopes": "Scopes and sub-agents",
    "search?q=line": "hits",
}


def serious(page: Any, axe: str) -> list[str]:
    """What axe-core finds that would keep somebody out; it is put in by the debugger, past the page's own policy."""
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{violation['id']}: {[node['html'][:200] for node in violation['nodes'][:3]]}"
        for violation in found["violations"]
        if violation["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_screen_is_drawn_and_keeps_nobody_out(
    visit: Visit, session_page: Path, axe: str, theme: str, width: int
) -> None:
    for screen, words in SCREENS.items():
        page = visit(session_page, f"#/{screen}", width=width, theme=theme)
        page.get_by_text(words).first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{screen} is wider than the window"
        assert serious(page, axe) == [], screen
        assert page.evaluate("document.documentElement.dataset.theme") == theme
        page.context.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_blocks_life_and_the_help_keep_nobody_out(visit: Visit, session_page: Path, axe: str, theme: str) -> None:
    page = visit(session_page, "#/left?block=B4", theme=theme)
    page.get_by_text("takes it back:").first.wait_for()
    assert serious(page, axe) == []
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    assert page.locator("dialog").get_by_text("light or dark").is_visible()
    assert serious(page, axe) == []


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_replay_is_drawn_and_keeps_nobody_out(visit: Visit, made_page: Any, axe: str, theme: str, width: int) -> None:
    page = visit(made_page("replay", samples.replay()), width=width, theme=theme)
    page.get_by_text("Retention against cost").wait_for()
    assert page.locator(".chart svg").count() == 3
    assert page.locator(".chart .invalid").count() == 3, "points of runs that failed are drawn as such"
    page.get_by_text("The pictures as a table").click()
    page.locator("details tbody tr").first.wait_for()
    assert page.locator("details tbody tr").count() == 12
    page.locator("#pair").select_option(index=1)
    assert page.get_by_text("<b>bold</b>").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert serious(page, axe) == []


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_what_was_spent_is_drawn_and_keeps_nobody_out(
    visit: Visit, made_page: Any, axe: str, theme: str, width: int
) -> None:
    page = visit(made_page("stats", samples.stats()), width=width, theme=theme)
    page.get_by_role("region", name="What was spent, by day").wait_for()
    assert page.locator("#stats svg g").count() == 60, "a bar a day in both pictures"
    assert page.locator("tbody tr").first.inner_text().split("\t")[10:12] == ["1:02:03", "–"]
    assert (page.locator("tbody").bounding_box()["width"] < width) == (width == 1280), "else it scrolls"
    dates = page.locator("#stats svg").first.locator("text", has_text="2026-03-").all()
    boxes = [date.bounding_box() for date in dates]
    assert len(boxes) >= 3 and all(one["x"] + one["width"] < other["x"] for one, other in pairwise(boxes))
    assert serious(page, axe) == []
    page.get_by_label("By", exact=True).select_option("model")
    assert page.get_by_text("<b>bold</b><script>alert(1)</script>").is_visible()
    assert page.locator("tbody .invisible").inner_text() == "U+202E"
    page.get_by_label("By", exact=True).select_option("file")
    page.get_by_text("17 more with less cost").wait_for()
    assert page.locator("tbody tr").count() == 50
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert serious(page, axe) == []


def test_the_numbers_of_the_page_are_those_of_its_data(visit: Visit, session_page: Path) -> None:
    verdict = samples.session()["verdict"]

    page = visit(session_page)

    assert page.locator(".verdict dd").all_inner_texts() == [number["text"] for number in verdict["numbers"]]
    left = int(next(number["text"] for number in verdict["numbers"] if number["name"] == "left"))
    page.goto(f"file://{session_page}#/left")
    assert page.get_by_role("button", name=f"all {left}").is_visible()


def test_an_empty_screen_says_why(visit: Visit, made_page: Any) -> None:
    calm = made_page("calm", samples.session(calls=8, budget=1_000_000))
    for screen, words in {
        "overview": "it only grew",
        "left": "Every block that came is in the prompt still",
        "cost": "Each prompt began as the one before",
        "search?q=zzzz": "Not in any text",
    }.items():
        assert visit(calm, f"#/{screen}").get_by_text(words).is_visible(), screen


def test_a_page_without_calls_says_so(visit: Visit, made_page: Any) -> None:
    made = samples.session(calls=2)
    calls = {name: [] if isinstance(values, list) else values for name, values in made["calls"].items()}
    calls |= {"n": 0, "tokens": {}, "cache": {name: [] for name in made["calls"]["cache"]}}

    page = visit(made_page("none", {**made, "calls": calls, "marks": [], "lives": []}))

    assert page.get_by_text("No model calls yet").is_visible()


def test_what_is_printed_has_neither_tabs_nor_buttons(visit: Visit, session_page: Path) -> None:
    page = visit(session_page, "#/left", theme="dark")
    page.emulate_media(media="print")
    assert not page.locator(".tabs").is_visible()
    assert page.locator("table").first.is_visible()
