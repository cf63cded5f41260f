"""Whatever was recorded is shown, and never run."""

from __future__ import annotations

import msgspec

from tests.hosts.report import samples
from tests.hosts.report.conftest import Visit

ATTACKS = [
    "<script>window.pwned = 1</script>",
    "</script><script>window.pwned = 1</script>",
    "<!-- <script> --> <img src=x onerror='window.pwned = 1'>",
    "&lt;b&gt; &amp; &#60;script&#62;",
    "evil \u202etxt.exe\u202c \u2066hidden\u2069 \u200bzero \ufeffmark \x1b[2Jclear \x00nul",
    "javascript:window.pwned=1//'\"`${window.pwned=1}",
    "@@data@@ @@scripts@@ $& \\u003c",
]


def test_no_text_of_a_session_becomes_part_of_the_page(visit: Visit, made_page: object) -> None:
    label = ATTACKS[0] + ATTACKS[2] + "\u202e"
    made = samples.session(calls=20, budget=8_000, texts=ATTACKS, label=label)
    for field in ("title", "session", "model", "command", "cost_reason"):
        made = {**made, field: ATTACKS[1]}
    causes = [{**cause, "reason": ATTACKS[2], "actor": ATTACKS[0]} for cause in made["causes"]]
    lives = [{**life, "undo": ATTACKS[1]} for life in made["lives"]]
    marks = [{**mark, "label": ATTACKS[0], "actor": ATTACKS[2]} for mark in made["marks"]]
    turns = [
        {**turn, "request": ATTACKS[0], "closing": ATTACKS[1], "commits": [ATTACKS[2]], "tasks": ATTACKS[0]}
        | {"commands": [[ATTACKS[1], 1, 1, "exit 1"]], "agents": [ATTACKS[0]], "others": [[ATTACKS[2], 2]]}
        for turn in made["turns"]
    ]
    files = [{**file, "path": ATTACKS[0]} for file in made["files"]]
    made = {**made, "causes": causes, "lives": lives, "marks": marks, "turns": turns, "files": files}
    path = made_page("hostile", made)  # type: ignore[operator]

    for link in (
        "overview",
        "overview?turn=1",
        "lanes?fold=tool",
        "prompt/3",
        "left",
        "cost",
        "scopes",
        "search?q=script",
        "left?block=B4",
    ):
        page = visit(path, f"#/{link}")
        page.wait_for_timeout(100)
        assert page.evaluate("window.pwned") is None, link
        assert page.locator("main img, main script, header script, aside script").count() == 0, link
        page.context.close()
    page = visit(path, "#/prompt/3")
    for attack in ATTACKS[:4]:
        assert page.locator(".pieces").get_by_text(attack, exact=True).count() > 0, attack
    names = page.locator(".pieces .invisible").all_text_contents()
    assert {"U+202E", "U+2066", "U+200B", "U+FEFF", "␛", "␀"} <= set(names)


def test_the_address_of_a_page_runs_nothing(visit: Visit, session_page: object) -> None:
    page = visit(
        session_page,
        "#/search/1?q=%3Cimg%20src%3Dx%20onerror%3D%22window.pwned%3D1%22%3E&block=%3Cscript%3E&filter=__proto__&fold=constructor",
    )
    page.wait_for_timeout(200)
    assert page.evaluate("window.pwned") is None
    page.goto(page.url.split("#")[0] + "#/__proto__")
    page.goto(page.url.split("#")[0] + "#/constructor?filter=constructor")
    page.get_by_role("heading", name="What happened").wait_for()


def test_a_line_of_five_megabytes_is_shown_a_part_at_a_time(visit: Visit, made_page: object) -> None:
    line = "x" * 5_000_000
    page = visit(made_page("long", samples.session(calls=4, texts=[line])), "#/prompt/1")  # type: ignore[operator]
    body = page.locator(".pieces .body").first
    assert len(body.inner_text()) < 2_000
    page.get_by_role("button", name="All of it").first.click()
    assert 100_000 < len(body.text_content()) < 300_000
    page.get_by_role("button", name="Go on").first.click()
    assert len(body.text_content()) == 400_000


def test_a_session_of_100000_blocks_is_shown(visit: Visit, made_page: object) -> None:
    path = made_page("many", samples.many_blocks())  # type: ignore[operator]
    page = visit(path, "#/lanes")
    assert page.locator("#lanes-canvas").get_attribute("aria-label").startswith("100,000 rows")
    page.locator(".lanes-scroll").evaluate("element => element.scrollTop = element.scrollHeight")
    page.locator("#lanes-canvas").click(position={"x": 60, "y": 60})
    page.locator(".drawer").wait_for()
    page.goto(page.url.split("#")[0] + "#/prompt/9000?block=B90000")
    page.locator(".piece").first.wait_for()
    assert page.locator(".drawer h2").inner_text().startswith("B90000@")
    page.goto(page.url.split("#")[0] + "#/left?filter=never")
    assert page.get_by_role("button", name="never read back").inner_text() == "never read back 99,510"
    page.goto(page.url.split("#")[0] + "#/search?q=99999")
    page.locator(".hit").first.wait_for()
    assert page.locator(".hits .hit").count() == 1


def test_a_body_that_is_not_in_the_page_names_the_command(visit: Visit, made_page: object) -> None:
    made = msgspec.json.decode(msgspec.json.encode(samples.session(calls=4)))
    made["blocks"]["body"][0] = -1
    made["bodies"]["cut"] = [{"block": 0, "bytes": 3_000_000, "command": "ctxvc show B1"}]
    page = visit(made_page("cut", made), "#/prompt/1")  # type: ignore[operator]
    assert page.get_by_text("2.9 MB, too large for this page. To see it:").is_visible()
    assert page.locator("code", has_text="ctxvc show B1").count() > 0
