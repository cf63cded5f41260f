"""What a person does with the page: by pointer, by keyboard alone, by links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ctxvc.cli.agents_session import AGENTS
from ctxvc.cli.commands.continue_ import RUN
from tests.hosts.report import samples
from tests.hosts.report.conftest import Visit


def _call(page: Any) -> str:
    return str(page.locator(".call-facts b").inner_text())


def test_the_slider_and_the_arrow_keys_go_from_call_to_call_and_the_link_follows(
    visit: Visit, session_page: Path
) -> None:
    page = visit(session_page, "#/prompt/20")
    assert _call(page) == "Call 20"

    page.keyboard.press("ArrowRight")
    assert (_call(page), page.url.split("#")[1]) == ("Call 21", "/prompt/21")
    page.keyboard.press("Shift+ArrowLeft")
    assert _call(page) == "Call 11"
    page.locator("#call-slider").focus()
    page.keyboard.press("ArrowLeft")
    assert _call(page) == "Call 10"
    page.locator("#call-slider").fill("33")
    assert (_call(page), page.url.split("#")[1]) == ("Call 33", "/prompt/33")
    page.keyboard.press("Home")
    assert _call(page) == "Call 1"


def test_a_prompt_has_the_pieces_that_were_sent_and_shows_which_entered(visit: Visit, session_page: Path) -> None:
    made = samples.session()
    pieces: list[int] = []
    for at, count, added in (splice for delta in made["prompts"]["deltas"][:20] for splice in delta):
        pieces[at : at + count] = added
    ids = [made["blocks"]["id"][made["prompts"]["pieces"][piece]["block"]] for piece in pieces]
    entered = [made["prompts"]["pieces"][piece] for _, _, added in made["prompts"]["deltas"][19] for piece in added]

    page = visit(session_page, "#/prompt/20")

    assert page.locator(".pieces .piece-head a").all_text_contents() == ids
    assert page.locator(".pieces .fresh").count() == len(entered)
    assert page.locator(".change.entered h3").inner_text().startswith(f"Entered {len(entered)} piece")


def test_the_brush_chooses_the_calls_of_everything_below(visit: Visit, session_page: Path) -> None:
    page = visit(session_page, "#/left")
    everything = page.locator("main tbody tr").count()
    over = page.locator(".river .u-over").bounding_box()
    middle = over["y"] + over["height"] / 2

    page.mouse.move(over["x"] + over["width"] * 0.2, middle)
    page.mouse.down()
    page.mouse.move(over["x"] + over["width"] * 0.4, middle, steps=5)
    page.mouse.up()

    first, last = (int(page.get_by_label(f"{end} call shown").input_value()) for end in ("first", "last"))
    assert 8 <= first <= 16 and 20 <= last <= 28
    assert 0 < page.locator("main tbody tr").count() < everything
    assert f"from={first}&to={last}" in page.url
    page.keyboard.press("a")
    assert page.locator("main tbody tr").count() == everything


def test_the_brush_chooses_the_calls_of_tables_and_scopes_too(visit: Visit, session_page: Path) -> None:
    for screen, title in (("overview", "The river as a table"), ("cost", "Both pictures as a table")):
        page = visit(session_page, f"#/{screen}?from=3&to=5")
        page.get_by_text(title).click()
        page.locator("details tbody tr").first.wait_for()
        assert page.locator("details tbody tr").count() == 3, screen
        page.keyboard.press("a")
        assert page.locator("details tbody tr").count() == 60, screen
    page = visit(session_page, "#/scopes?from=1&to=10")
    assert page.locator(".scope-card.absent").inner_text().split() == ["fix-auth", "0", "calls"]
    assert page.get_by_text("There are notes in others").is_visible()
    page.keyboard.press("a")
    assert page.locator(".scope-card.absent").count() == 0
    assert page.locator("main tbody tr").first.is_visible()


def test_a_link_to_a_block_chooses_its_row_in_the_lanes(visit: Visit, session_page: Path) -> None:
    page = visit(session_page, "#/lanes?block=B90")
    page.keyboard.press("Escape")
    assert page.locator(".lanes-scroll").evaluate("element => element.scrollTop") > 0
    page.locator("#lanes-canvas").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.locator(".drawer h2").inner_text().startswith("B91@")


def test_a_result_that_was_withheld_is_among_what_left(visit: Visit, made_page: Any) -> None:
    made = samples.session(calls=8, budget=1_000_000)
    block = made["blocks"]["kind"].index("tool_result")
    ((came, *_),) = (made["blocks"]["intervals"][block][:1],)
    intervals = [*made["blocks"]["intervals"]]
    intervals[block] = [came, 9, made["states"].index("stub")]
    cause = {"actor": "guard", "policy": "", "reason": "", "commit": "c" * 40}
    life = {"block": block, "call": came, "verb": "offload", "cause": 0}
    path = made_page(
        "withheld", {**made, "blocks": {**made["blocks"], "intervals": intervals}, "causes": [cause], "lives": [life]}
    )

    page = visit(path, "#/left")

    assert page.get_by_role("button", name="all 1").is_visible()
    assert page.get_by_text("too large to be shown").is_visible()


def test_a_click_on_the_river_chooses_a_call(visit: Visit, session_page: Path) -> None:
    page = visit(session_page)
    page.locator(".river .u-over").click(position={"x": 300, "y": 50})
    assert "Call 1" in page.locator(".readout").first.inner_text()
    assert page.url.split("#")[1].startswith("/overview/1")


def test_a_search_finds_what_left_and_says_where_it_is_now(visit: Visit, session_page: Path) -> None:
    page = visit(session_page)
    page.keyboard.press("/")
    page.keyboard.type("line 1 of tool_result 3")
    page.locator(".hit").first.wait_for()

    first = page.locator(".hit").filter(has=page.locator("a[data-block=B4]"))
    assert "now: " in first.inner_text()
    assert first.locator("mark").count() > 0
    first.locator("a[data-block=B4]").click()
    assert page.locator(".drawer h2").inner_text().startswith("B4@")
    assert "q=line+1+of" in page.url and "block=B4" in page.url


def test_links_lead_to_screens_and_back_leads_back(visit: Visit, session_page: Path) -> None:
    page = visit(session_page, "#/prompt/12?from=3&to=40")
    assert _call(page) == "Call 12"
    page.get_by_role("link", name="Cost and cache").click()
    assert page.url.endswith("#/cost/12?from=3&to=40")
    page.go_back()
    assert _call(page) == "Call 12"
    page.goto(page.url.split("#")[0] + "#/nowhere/999999?block=B99999&from=-4&fold=%3Cb%3E")
    assert page.get_by_text("No block B99999").is_visible()


def test_the_keyboard_alone_opens_a_life_and_comes_back(visit: Visit, session_page: Path) -> None:
    page = visit(session_page)
    page.keyboard.press("2")
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.className") == "lanes-canvas":
            break
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")

    assert page.locator(".drawer h2").inner_text().startswith("B3@")
    page.keyboard.press("Escape")
    assert not page.locator(".drawer").is_visible()
    assert page.evaluate("document.activeElement.className") == "lanes-canvas"


def test_lanes_fold_by_file_and_have_their_table(visit: Visit, session_page: Path) -> None:
    page = visit(session_page, "#/lanes")
    blocks = int(page.locator(".lanes-canvas").get_attribute("aria-label").split()[0])
    page.get_by_role("button", name="file").click()
    files = int(page.locator(".lanes-canvas").get_attribute("aria-label").split()[0])
    assert (blocks, files) == (samples.session()["blocks"]["n"], 8)
    page.get_by_text("The lanes as a table").click()
    assert page.get_by_text("stub 14–").first.is_visible()


def test_what_left_is_filtered_and_sorted(visit: Visit, session_page: Path) -> None:
    page = visit(session_page, "#/left")
    page.get_by_role("button", name="read back", exact=False).nth(1).click()
    back = page.locator("main tbody tr").count()
    assert back == len([life for life in samples.session()["lives"] if life["verb"] == "restore"])
    page.get_by_role("button", name="all ").first.click()
    page.get_by_role("button", name="tokens").click()
    sizes = page.locator("main tbody td:nth-child(5)").all_inner_texts()
    assert sizes == sorted(
        sizes, key=lambda size: float(size.removesuffix("k")) * (1000 if "k" in size else 1), reverse=True
    )


def test_a_table_can_be_read_on_a_telephone(visit: Visit, session_page: Path) -> None:
    page = visit(session_page, "#/left", width=390)
    assert page.locator("main td.wide").first.bounding_box()["width"] >= 200
    assert page.evaluate("document.documentElement.scrollWidth") <= 390, "the table scrolls, not the page"


def test_the_theme_is_switched_and_stays(visit: Visit, session_page: Path) -> None:
    page = visit(session_page)
    page.keyboard.press("t")
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_the_button_shows_the_command_that_goes_on_from_the_call_that_is_looked_at(
    visit: Visit, session_page: Path
) -> None:
    commits = samples.session()["calls"].get("commit") or []
    page = visit(session_page, "#/prompt/20")
    page.get_by_role("button", name="Continue").click()
    dialog = page.locator("dialog[open]")
    command, start = dialog.locator("code.command"), commits[19][:12] if commits else samples.session()["session"]

    assert command.inner_text() == f"ctxvc continue {start} --in claude-code"
    dialog.locator("select").select_option("run")
    assert command.inner_text() == f"ctxvc continue {start} --in run"
    assert ("call 20" in dialog.inner_text(), "ctxvc run" in dialog.inner_text()) == (bool(commits), True)
    box, around = command.bounding_box(), dialog.bounding_box()
    assert around["x"] < box["x"] and box["x"] + box["width"] < around["x"] + around["width"]
    page.keyboard.press("Escape")
    assert page.locator("dialog[open]").count() == 0
    page.keyboard.press("ArrowRight")
    page.get_by_role("button", name="Continue").click()
    assert not commits or commits[20][:12] in command.inner_text()


def test_the_agents_of_the_button_are_those_of_the_command(visit: Visit, session_page: Path) -> None:
    page = visit(session_page)
    page.get_by_role("button", name="Continue").click()

    shown = page.locator("dialog[open] option").all_text_contents()
    assert shown == [name for name in (*AGENTS, RUN) if name != "mini-swe-agent"]
