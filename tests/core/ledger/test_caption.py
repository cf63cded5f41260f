"""Captions: what a block or a step is to a person; any bytes, any width."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.core import display
from ctxvc.core.ledger import caption
from ctxvc.core.ledger.ledger import Ledger, Meta, Row

FOLDER = "/home/ada/app"
TEXT = st.text(max_size=120)
PARTS = st.lists(st.text("abcdeüx漢_-.", min_size=1, max_size=12), min_size=2, max_size=9)


def called(tool: str, width: int = 60, **arguments: object) -> str:
    return caption.of_call(tool, json.dumps(arguments).encode(), "json", FOLDER).fitted(width)


@pytest.mark.parametrize(
    ("tool", "arguments", "text"),
    [
        ("Read", {"file_path": f"{FOLDER}/src/a.py", "offset": 3, "limit": 8}, "Read src/a.py 3–10"),
        ("Edit", {"file_path": "/etc/a.py", "old_string": "a", "new_string": "b\nc"}, "Edit /etc/a.py +2 −1"),
        ("Bash", {"command": f"cd {FOLDER} && go test {FOLDER}/x ./..."}, "Bash go test x ./..."),
        ("Bash", {"command": "# run them\npytest -q\necho done"}, "Bash pytest -q …"),
        ("Bash", {"command": f"ls {FOLDER}-old {FOLDER}"}, f"Bash ls {FOLDER}-old ."),
        ("Bash", {"command": 'git add -A && git commit -m "Fix it"'}, "Bash git commit “Fix it”"),
        ("shell", {"command": ["bash", "-lc", "make"]}, "shell make"),
        ("Bash", {"command": "tmp=$(mktemp).md\ncat > \"$tmp\" <<'E'\nDo it\nE\nsend $tmp"}, "Bash send $tmp …"),
        ("Bash", {"command": "python3 - <<'E'\nimport os\nE"}, "Bash python3 - <<'E' …"),
        ("Grep", {"pattern": "x", "path": "src/core"}, "Grep x in core"),
        ("apply_patch", {"input": "*** Begin Patch\n*** Update File: a.go\n+x\n*** Add File: b.go\n"}, None),
        ("Write", {"file_path": f"{FOLDER}/{'deep/' * 30}end.py", "content": "x"}, None),
    ],
)
def test_a_call_is_its_tool_and_what_it_was_about(tool: str, arguments: dict[str, object], text: str | None) -> None:
    expected = {"apply_patch": "apply_patch a.go +1 −0 (+1 file)"}.get(tool, text)
    if tool == "Write":
        assert called(tool, **arguments).endswith("deep/end.py +1 −0")
        assert called(tool, **arguments).startswith("Write deep/…/deep/")
    else:
        assert called(tool, **arguments) == expected


@given(PARTS, st.integers(12, 60))
def test_a_path_is_cut_in_its_middle_and_keeps_its_name(parts: list[str], width: int) -> None:
    path = "/".join(parts)
    text = display.path_fitted(path, width)
    assert display.columns(text) <= width
    head, mark, tail = text.partition("…") if text != path else (path, "", "")
    assert path.startswith(head) and path.endswith(tail)
    assert not mark or not head or tail.startswith("/"), "what is left stands between slashes"
    if display.columns(parts[-1]) + 2 <= width and "…" not in path:
        assert text.endswith(parts[-1])


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (60, "internal/very/long/strategy/bootstrap.go"),
        (39, "internal/…/long/strategy/bootstrap.go"),
        (24, "internal/…/bootstrap.go"),
        (20, "…/bootstrap.go"),
        (9, "…strap.go"),
    ],
)
def test_the_beginning_of_a_path_goes_before_its_name_does(width: int, text: str) -> None:
    assert display.path_fitted("internal/very/long/strategy/bootstrap.go", width) == text


@given(st.one_of(TEXT, PARTS.map("/".join)), st.integers(0, 40))
def test_a_text_fits_any_width(text: str, width: int) -> None:
    line = display.one_line(text, 200)
    assert display.columns(display.fitted(line, width)) <= width
    assert display.fitted(line, 1_000) == line


@given(st.text(max_size=30), st.binary(max_size=200), st.sampled_from(["json", "txt"]))
def test_a_call_with_any_arguments_has_a_caption_of_one_safe_line(tool: str, body: bytes, ext: str) -> None:
    text = caption.of_call(tool, body, ext, FOLDER).fitted(72)
    assert text
    assert display.one_line(text, 1_000) == text
    assert display.columns(text) <= 72


def row(number: int, kind: str, role: str, origin: str, **fields: object) -> Row:
    made: dict[str, object] = {"id": f"B{number}", "kind": kind, "role": role, "origin": origin, **fields}
    return Row(msg=1, step=1, turn=1, bytes=1, sha256="00" * 32, **made)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("label", "text"),
    [
        ("## fix **it**", "fix it"),
        ("<command-message>review</command-message> <command-name>/review</command-name>", "/review"),
        ("<command-name>/review</command-name> <command-args>181, please</command-args>", "/review 181, please"),
        ("<command-message>a</command-message> <command-name>/a</command-name> <command-args>of thre…", "/a of thre…"),
        ("<current_datetime>2026-06-25T03:50</current_datetime> investigate", "investigate"),
        ("<system-reminder>be brief</system-reminder>", "<system-reminder>be brief</system-reminder>"),
        ("<div>what is this</div> a person pasted", "<div>what is this</div> a person pasted"),
        ("<command-name>cut in the midd…", "<command-name>cut in the midd…"),
        ("<", "<"),
    ],
)
def test_a_persons_words_are_without_what_a_client_put_around_them(label: str, text: str) -> None:
    assert caption.plain(label) == text


@pytest.mark.parametrize(
    ("kind", "ext", "body", "text"),
    [
        ("thinking", "json", b'{"type":"reasoning","summary":[],"encrypted_content":"gAAA"}', "hidden thinking"),
        ("thinking", "json", b'{"type":"reasoning","summary":[{"text":"**Look** at\\nit"}]}', "Look at it"),
        ("thinking", "json", b'{"summary":[{"text":7}]}', "hidden thinking"),
        ("thinking", "json", b"{cut off", "hidden thinking"),
        ("thinking", "txt", b"{so it is}", "its label"),
        ("assistant", "json", b'{"summary":[{"text":"Look"}]}', "its label"),
    ],
)
def test_thinking_that_is_hidden_is_its_summary(kind: str, ext: str, body: bytes, text: str) -> None:
    thinking = row(1, kind, "assistant", "model", ext=ext, label="its label")
    assert caption.of_row(thinking, Ledger(Meta(format=2, session="s", scope="main")), lambda _: body) == text


def test_a_step_is_the_humans_words_and_its_first_call() -> None:
    rows = [
        row(1, "user", "user", "human", label="fix the login test, please, it has failed since Monday"),
        row(2, "tool_use", "assistant", "model", call="c1", tool="Read", ext="json"),
        row(3, "tool_use", "assistant", "model", call="c2", tool="Read", ext="json"),
        row(4, "tool_result", "user", "tool", call="c1", error=True),
    ]
    text = caption.of_step(rows, lambda _: b'{"path": "src/auth.py"}')

    assert text == "“fix the login test, please, …” · Read src/auth.py (failed, +1 call)".replace(", …”", ",…”")
    assert caption.of_step(rows[:1], lambda _: b"").endswith("· no reply")
    answer = row(5, "assistant", "assistant", "model", label="## **Done.** All pass.")
    assert caption.of_step([answer], lambda _: b"") == "Done. All pass."
