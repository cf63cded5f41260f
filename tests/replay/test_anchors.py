"""Anchors: what is one, of which kind, where it stands, and in how much time that is known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.replay.measures.anchors import (
    FILE,
    AnchorIndex,
    anchors,
    common_anchors,
    edited_lines,
    listing,
    reply_anchors,
    stands_in,
)
from tests.replay.login import LINE, reply

#: Texts in which anchors are likely, and begin and end in odd places.
TEXTS = st.lists(
    st.sampled_from(
        [*"aZ_0é说 ./:-@+~,\"'`([\n", "https://", "HAT136", "1,234", "12345", "saveAll", "--no-x", "a.go", "abc1234f"]
    ),
    max_size=30,
).map("".join)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see https://a.example/b/c?x=1.", {"https://a.example/b/c?x=1": "url"}),
        ("file:// is none", {}),
        ("in cmd/cli/main.go:12.", {"cmd/cli/main.go": "path"}),
        ("./cmd/cli/main.go", {"cmd/cli/main.go": "path"}),
        ("go test ./...", {}),
        ("~/notes.txt, /etc/hosts", {"~/notes.txt": "path", "/etc/hosts": "path"}),
        ("on fix/login-2", {"fix/login-2": "path"}),
        ("yes and/or no, 24/7, 2024/01/02", {"2024": "number"}),
        ("edit go.mod", {"go.mod": "path"}),
        ("read a.go", {}),  # too short
        ("booked HAT136 and JG7FMM for mia_li_3668", {"HAT136": "id", "JG7FMM": "id", "mia_li_3668": "id"}),
        ("8f14e45f-ceea-467f-a0e6-1b2c3d4e5f60", {"8f14e45f-ceea-467f-a0e6-1b2c3d4e5f60": "id"}),
        ("commit 340918e71b, no deadbeef", {"340918e71b": "hash"}),
        ("port 8080, 1,234,567 of 999", {"8080": "number", "1,234,567": "number"}),
        ("2024-05-20, lines 1200-1350", {"2024-05-20": "number", "1200": "number", "1350": "number"}),
        ("saveAll, save_all, _saveall", {"saveAll": "identifier", "save_all": "identifier"}),
        ("plainly a plain word", {}),
        ("rehearse(view)", {"rehearse": "identifier"}),
        ("git push --no-verify --all", {"--no-verify": "identifier"}),
        ("tree-sitter-go, well-known", {"tree-sitter-go": "identifier"}),
        ("fmt.Errorf(message)", {"fmt.Errorf": "identifier"}),
        ("store.saveAll", {"saveAll": "identifier"}),
        ("it said 'no such host' to it", {"no such host": "quoted"}),
        ("don't you say it's so", {}),
        ("'1 2 3 4' and '1 2 3 5x'", {"1 2 3 5x": "quoted"}),  # 7 and 8 characters
        (f"'{'a ' * 40}b' or '{'a ' * 39}bc'", {f"{'a ' * 39}bc": "quoted"}),  # 81 and 80
        ('"main.go and more"', {"main.go and more": "quoted", "main.go": "path"}),
        ('"config.yaml"', {"config.yaml": "path"}),
    ],
)  # fmt: skip
def test_an_anchor_has_its_kind(text: str, expected: dict[str, str]) -> None:
    assert anchors(text) == expected


def test_an_edit_quotes_the_lines_before_it() -> None:
    edits = {"edits": [{"old_string": f"\t{LINE}\n  too short\n", "new_string": "a line that is new and long enough"}]}

    assert list(edited_lines(edits)) == [LINE]


@pytest.mark.parametrize(
    ("head", "tail"),
    [
        ("*** Begin Patch\n*** Update File: a.go\n@@\n", "*** End Patch\n not in it, but long enough for a line"),
        ("--- a/a.go\n+++ b/a.go\n@@ -1,2 +1,2 @@\n", "--- a/b.go"),
    ],
)
def test_a_patch_quotes_its_context_and_what_it_removes(head: str, tail: str) -> None:
    patch = f"{head} {LINE} // stays\n-{LINE}\n+a line that is new and long enough\n{tail}"

    assert list(edited_lines({"input": patch})) == [f"{LINE} // stays", LINE]


def test_a_reply_names_what_it_says_and_calls_but_not_what_it_thinks() -> None:
    made = reply("see saveAll", thinking="or perhaps loadAll", c=("Edit", {"old_string": LINE, "limit": 48213}))

    assert reply_anchors(made) == {
        "saveAll": "identifier",
        "48213": "number",
        "compare_digest": "identifier",
        "user.token": "identifier",
        LINE: "line",
    }


@pytest.mark.parametrize(
    ("anchor", "text", "stands"),
    [
        ("get", "a widget", False),
        ("get", "widget get", True),
        ("auth.py", "/srv/auth.py:12", True),
        ("auth.py", "oauth.py", False),
        ("/srv/a", "/srv/ab /srv/a", True),
        ("1234", "12345 01234", False),
    ],
)
def test_an_anchor_does_not_stand_inside_a_word(anchor: str, text: str, stands: bool) -> None:
    assert stands_in(anchor, text) is stands


@given(TEXTS)
def test_what_is_taken_from_a_text_stands_in_it(text: str) -> None:
    assert all(stands_in(anchor, text) for anchor in anchors(text))


@given(TEXTS, st.lists(TEXTS, max_size=4))
def test_an_index_finds_what_stands_in_a_text(text: str, others: list[str]) -> None:
    texts = list(dict.fromkeys(anchor for one in (text, *others) for anchor in anchors(one)))

    places = AnchorIndex(texts, {}).places(text)

    assert sorted(places) == [place for place, anchor in enumerate(texts) if stands_in(anchor, text)]


HOSTILE = (
    "a",
    "a/",
    "a.",
    "a-",
    "a_",
    "'",
    " 'a",
    "a'",
    "\"`'",
    "1,111",
    "http://",
    "1-",
    "--a",
    "\n@@ ",
    "f(",
    "A0",
    "ab1 ",
)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_text_is_read_to_its_end(piece: str) -> None:
    """In the square of its length, it would take minutes."""
    text = piece * (150_000 // len(piece))

    assert sum(map(len, anchors(text + "\nhttps://example.org/last"))) < 2 * len(text)
    assert "https://example.org/last" in anchors(text + "\nhttps://example.org/last")
    list(edited_lines({"old_string": text, "input": "*** Begin Patch\n" + text}))


def test_the_list_of_common_anchors_is_of_its_version() -> None:
    common = common_anchors()

    assert "README.md" in common
    assert FILE.read_text(encoding="utf-8") == listing(common.anchors)
    assert common.version == listing(common.anchors).partition("\n")[0]
