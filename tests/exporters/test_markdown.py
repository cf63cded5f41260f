"""A page for a pull request: what was asked and done, bounded, and nothing recorded becomes markup."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc import exporters
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message
from ctxvc.exporters import markdown
from ctxvc.exporters.markdown import LIMIT, escaped
from ctxvc.session.session import Session
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from tests.exporters.trips import conversation
from tests.making.conversation import human, reply, results, step
from tests.making.store import archive, archived

#: What would be markup if no backslash stood before it, and what would be a link or a mention.
_BARE = re.compile(r"(?<!\\)(?:\\\\)*[`*_\[\]<>&|~$]")
_LINK = re.compile(r"@\w|#[0-9]|GH-[0-9]|(?:https?|ftp|mailto|xmpp):|www\.", re.IGNORECASE | re.ASCII)
_COMMENT = "<!-- -->"


@given(st.text() | st.from_regex(r"[@#<\[*_`|.:w/h0-9 \n\\-]{1,30}|https?://\w+|GH-[0-9]", fullmatch=True))
def test_no_text_becomes_markup_a_link_or_a_mention(text: str) -> None:
    shown = escaped(text)

    assert _BARE.search(shown.replace(_COMMENT, "")) is None
    assert _LINK.search(shown) is None
    assert not any(re.match(r"\s|[#+=>-]|[0-9]+[.)]", line) for line in shown.split("\n"))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e\u2066]", shown)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain words, 100 %.", "plain words, 100 %."),
        ("# no heading", r"\# no heading"),
        ("12. no item", r"12\. no item"),
        ("<script>x</script>", r"\<script\>x\</script\>"),
        ("ask @bob about #12", f"ask @{_COMMENT}bob about #{_COMMENT}12"),
        ("https://example.org/a", f"https{_COMMENT}://example.org/a"),
        ("a\x1b[31mb", r"a\\x1b\[31mb"),
    ],
)
def test_text_is_shown_as_it_is(text: str, shown: str) -> None:
    assert escaped(text) == shown


def page(store: Store, *messages: Message) -> str:
    store.create_session("demo")
    with StoredSession.open(store, "demo") as session:
        session.append(*messages)
    return markdown.export(conversation(store, "demo")).data.decode()


def edit(path: str) -> Message:
    body = wire.compact({"file_path": path, "old_string": "a", "new_string": "b\nc"})
    return Message(role="assistant", parts=(wire.call_part("Edit", "e1", body),))


def test_the_page_tells_the_request_the_outcome_the_files_the_notes_and_what_left(store: Store) -> None:
    store.create_session("demo")
    with StoredSession.open(store, "demo") as session:
        done = results(wire.result_part("ok", "e1"))
        session.append(
            human("fix *it* in <app.py>"), edit("app.py"), done, *step(1, "x" * 9_000), reply("It is fixed.")
        )
    with Session(StoredSession.open(store, "demo")) as session:
        session.note("the sum was off")
    with StoredSession.open(store, "demo") as session:
        archive(session, "B5")

    export = markdown.export(conversation(store, "demo"))
    text = export.data.decode()

    assert text.startswith("## fix \\*it\\* in \\<app.py\\>\n")
    assert "> fix \\*it\\* in \\<app.py\\>" in text
    assert "> It is fixed." in text
    assert "- app.py: edited +2 −1" in text
    assert "- the sum was off" in text
    assert "- archive B5 — user" in text
    assert "x" * 100 not in text
    assert {"B2", "B5"} <= {loss.path for loss in export.losses}


def test_a_long_session_fits_into_a_description(store: Store) -> None:
    turns = [one for number in range(90) for one in (human(f"{number} " + "long & * " * 900), reply("done " * 2_000))]
    text = page(store, *turns)

    assert len(text.encode("utf-16-le")) // 2 <= LIMIT
    assert text.count("<details>") == text.count("</details>") > 0
    assert "> 0 long" in text
    assert "> 89 long" in text, "the latest turn is there"


@pytest.mark.parametrize("format", exporters.FORMATS)
def test_what_was_deleted_is_in_no_export(store: Store, format: str) -> None:
    page(store, human("keep this"), reply("fine"), human("forget this"), reply("done"))
    with StoredSession.open(store, "demo") as session:
        row = archived(session.ledger()["B3"], state="deleted")
        session.change(subject="delete B3", op="delete", actor="user", rows=[row])

    assert b"forget this" not in exporters.exporter(format).export(conversation(store, "demo")).data
