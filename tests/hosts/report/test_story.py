"""The story that the Overview tells: its turns, their steps, what calls did, and text that is laid out as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.hosts.report import samples
from tests.hosts.report.conftest import Visit
from tests.hosts.report.test_screens import serious

HOSTILE = """# A heading <img src=x onerror=alert(1)>

Text with `code <b>`, **strong**, *emphasis* and [a link](https://example.org/a) and [none](javascript:alert(1)).

- one
  - inner \u202e
2. not of it

```html
<script>alert(1)</script>
```

| a | b |
|---|---|
| <i>c</i> | https://example.org/b. |

<iframe src="https://example.org"></iframe>
"""


def _made(**changes: Any) -> Mapping[str, Any]:
    return {**samples.session(texts=[HOSTILE]), **changes}


def test_a_row_a_turn_says_what_was_asked_done_and_answered(visit: Visit, session_page: Path) -> None:
    page = visit(session_page)

    rows = page.locator(".turns > li")
    assert rows.count() == 5
    text = rows.nth(1).inner_text()
    for words in ("request 2", "internal/strategy/bootstrap.go +3 −1", "✗ failed: make check ×2 exit 2", "✓ make"):
        assert words in " ".join(text.split()), words
    for words in ("“fix it”", "2 reads, 1 search · browse ×2 · tasks 1/2 look", "answer 2", "12 calls"):
        assert words in text, words
    assert "last words" in text and "last words" not in rows.nth(0).inner_text()
    short = page.locator(".in-short").inner_text()
    assert "“request 1” and 4 more requests" in short
    assert "1 file changed (+1 −1); 5 commits; 15 commands, 5 of them failed; 10 reads, 5 searches" in short


def test_the_marks_of_turns_stand_where_the_river_has_their_calls(visit: Visit, session_page: Path) -> None:
    page = visit(session_page)
    river = page.locator(".river .u-over").bounding_box()

    for turn, box in enumerate(one.bounding_box() for one in page.locator(".turn-mark").all()):
        assert abs(box["x"] - river["x"] - river["width"] * turn / 5) < 3
        assert abs(box["width"] - river["width"] / 5) < 3
    track = page.locator(".turn-track").nth(1).bounding_box()
    assert abs(track["x"] - river["x"]) < 3 and abs(track["width"] - river["width"]) < 6


def test_a_turn_opens_by_keyboard_and_by_its_link_and_its_calls_are_for_people(
    visit: Visit, session_page: Path, axe: str
) -> None:
    page = visit(session_page)
    summary = page.locator(".turns > li summary").first
    summary.focus()
    page.keyboard.press("Enter")
    steps = page.locator(".turns > li").first.locator(".step")
    assert steps.count() == 12 and page.url.endswith("#/overview?turn=1")

    page.goto(f"file://{session_page}#/overview?turn=2")
    page.reload()
    turn = page.locator(".turns > li").nth(1)
    turn.locator(".step").first.wait_for()
    calls = turn.locator("details.call", has=page.locator(".step-size, .tag"))
    for at in range(calls.count()):
        calls.nth(at).locator("summary").click()
    assert turn.locator("pre.diff .add").first.inner_text() == "+func new() // <b>"
    assert turn.locator("pre.diff .del").first.inner_text() == "-func old()"
    assert turn.locator(".command-text").first.inner_text() == "cd /work\nmake check"
    assert turn.locator(".tasks li").all_text_contents()[:2] == ["☑ look (done)", "▶ mend (being done)"]
    assert turn.get_by_text("What came back: exit 2").count() >= 1
    assert serious(page, axe) == []


def test_a_file_has_its_diff_and_the_turns_that_changed_it(visit: Visit, session_page: Path) -> None:
    page = visit(session_page)
    page.locator(".files summary").click()
    assert page.locator(".files pre.diff .add").inner_text() == "+func new() // <b>"
    page.locator(".files").get_by_role("link", name="turn 3").click()
    page.locator(".turns > li").nth(2).locator(".step").first.wait_for()


def test_markdown_is_laid_out_and_no_markup_comes_of_it(visit: Visit, made_page: Any) -> None:
    page = visit(made_page("markdown", _made()), "#/overview?turn=1")
    text = page.locator(".turns .by-user .md").first
    text.wait_for()

    assert text.locator(".md-heading").inner_text() == "A heading <img src=x onerror=alert(1)>"
    assert text.locator("p code").first.inner_text() == "code <b>"
    assert [text.locator(tag).first.inner_text() for tag in ("strong", "em")] == ["strong", "emphasis"]
    links = text.locator("a")
    addresses = [link.get_attribute("href") for link in links.all()]
    assert addresses == ["https://example.org/a", "https://example.org/b", "https://example.org"], "no other scheme"
    assert {link.get_attribute("rel") for link in links.all()} == {"noopener noreferrer nofollow"}
    assert text.locator("ul > li ul > li").inner_text() == "inner U+202E"
    assert text.locator("pre.code").inner_text() == "<script>alert(1)</script>"
    assert text.locator("td").first.inner_text() == "<i>c</i>"
    assert page.locator("iframe, .md img, .md b, .md i, .md script").count() == 0
    assert text.get_by_text("<iframe src=").count() == 1


def test_an_image_is_a_thumbnail(visit: Visit, made_page: Any) -> None:
    page = visit(made_page("image", samples.session(calls=7)), "#/overview?turn=1")
    page.locator("img.thumbnail").wait_for()
    assert page.evaluate("document.querySelector('img.thumbnail').naturalWidth") == 1


def test_a_narrow_label_keeps_the_name_of_its_file(visit: Visit, made_page: Any) -> None:
    made = _made()
    path = "Read packages/a-long-folder/of-many/that-are-nested/deeply/bootstrap.go 1–20"
    made["blocks"]["label"][:] = [path] * made["blocks"]["n"]
    page = visit(made_page("narrow", made), "#/overview?turn=1", width=390)
    tail = page.locator(".turns .call .path-tail").first
    tail.wait_for()
    shown = tail.evaluate("element => element.scrollWidth <= element.clientWidth")
    assert shown and tail.inner_text() == "/bootstrap.go 1–20"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
