"""The page beside a store: `ctxvc ui`, its sessions, one that grows, and verbs whose plan is shown first."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hosts.report.conftest import DEMO, Visit, ctxvc, environment


@pytest.fixture
def project(tmp_path: Path) -> Path:
    ctxvc(tmp_path, "init")
    ctxvc(tmp_path, "import", "--name", "demo", str(DEMO))
    return tmp_path


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[str]:
    """The address of `ctxvc ui` in a project."""
    command = [sys.executable, "-m", "ctxvc", "ui", "--no-open", *options]
    with subprocess.Popen(command, cwd=folder, env=environment(folder), stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(20)


@pytest.fixture
def address(project: Path) -> Iterator[str]:
    with serving(project) as address:
        yield address


@pytest.fixture
def editable(project: Path) -> Iterator[str]:
    with serving(project, "--edit") as address:
        yield address


def test_the_sessions_are_listed_and_one_is_opened(address: str, visit: Visit) -> None:
    page = visit(address)
    page.locator("tbody a").first.click()
    page.locator(".verdict").wait_for()
    assert page.locator(".live").inner_text() == "live"
    page.get_by_role("link", name="Prompt").click()
    page.locator(".piece").first.wait_for()
    assert "session=demo" in page.url
    page.locator("[data-block=B1]").first.click()
    assert page.locator(".drawer .verbs").count() == 0, "no verbs unless the server allows them"
    page.keyboard.press("Escape")
    page.get_by_role("link", name="All sessions").click()
    page.locator("tbody a").first.wait_for()


def test_what_was_spent_is_added_up_by_what_a_person_chooses(address: str, visit: Visit) -> None:
    page = visit(address)
    page.get_by_role("link", name="What was spent").click()
    page.get_by_role("region", name="What was spent, by day").wait_for()
    page.get_by_label("By", exact=True).select_option("tool")
    table = page.get_by_role("region", name="What was spent, by tool")
    table.locator("tbody tr").first.wait_for()
    assert "Bash" in table.inner_text() and table.locator("meter").count() >= 2
    assert "filter=tool" in page.url
    page.reload()
    table.locator("tbody tr").first.wait_for()
    assert "calls" in page.locator(".verdict").inner_text()
    page.get_by_role("link", name="All sessions").click()
    page.get_by_label("Sessions", exact=True).wait_for()


def test_a_change_of_the_session_is_drawn(address: str, visit: Visit, project: Path) -> None:
    page = visit(address)
    page.locator("tbody a").first.click()
    page.get_by_text("Nothing left it").wait_for()
    ctxvc(project, "archive", "B4")
    page.get_by_text("left it; none came back").wait_for(timeout=10_000)


def test_what_a_person_has_open_stays_when_the_page_is_drawn_again(address: str, visit: Visit, project: Path) -> None:
    page = visit(address)
    page.locator("tbody a").first.click()
    page.locator(".verdict").wait_for()
    page.goto(page.url.replace("overview", "lanes") + "&fold=tool")
    page.locator("#lanes-canvas").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    rows = page.locator("#lanes-canvas").get_attribute("aria-label")
    page.get_by_text("The lanes as a table").click()
    tokens = page.get_by_role("button", name="tokens")
    tokens.click()
    first = page.locator("details tbody tr").first.inner_text()
    page.evaluate("document.querySelector('.frame').dataset.drawn = 'before'")

    ctxvc(project, "archive", "B4")
    page.wait_for_selector(".frame:not([data-drawn])", timeout=10_000)

    assert page.locator("#lanes-canvas").get_attribute("aria-label") == rows, "the fold is open still"
    assert page.locator("details[open] tbody tr").first.inner_text() == first, "the table is open, and sorted as it was"
    assert page.evaluate("document.activeElement.textContent") == "tokens"


def test_a_verb_shows_its_plan_and_is_done_and_undone(editable: str, visit: Visit) -> None:
    page = visit(editable)
    page.locator("tbody a").first.click()
    page.locator(".verdict").wait_for()
    page.goto(page.url + "&block=B4")
    page.get_by_role("button", name="Archive …").click()
    page.locator("dialog[open] pre").wait_for()
    assert "B4" in page.locator("dialog[open]").inner_text()
    page.get_by_role("button", name="Do it").click()
    page.get_by_role("button", name="Close").last.click()
    page.locator(".drawer").get_by_role("button", name="Restore …").wait_for(timeout=10_000)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Undo").click()
    page.get_by_role("button", name="Do it").click()
    page.get_by_role("button", name="Close").last.click()
    page.get_by_text("Nothing left it").wait_for(timeout=10_000)


def test_nothing_is_shown_without_the_token(address: str, browser: object) -> None:
    bare = address.partition("?")[0]
    page = browser.new_context().new_page()  # type: ignore[attr-defined]
    assert page.goto(bare).status in (401, 403)
    page.context.close()
