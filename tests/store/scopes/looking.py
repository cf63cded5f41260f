"""What the tests of scopes look at: texts, notes, parents, what would be sent, and that all is in order."""

from __future__ import annotations

from pathlib import Path

from ctxvc.core.prompt import formats
from ctxvc.core.prompt.outline import Bodies, Piece, outline, pieces, sendable
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from ctxvc.store.verify.verify import verify
from tests.making.conversation import exchange, human, reply, result, results
from tests.making.store import contents, git
from tests.messages_api.rules import canonical_problems as problems


def texts(session: StoredSession, scope: str = "") -> list[str]:
    """The bodies of a scope, in order."""
    return [body.decode() for body in contents(session, scope).values()]


def notes(session: StoredSession, scope: str = "") -> list[str]:
    rows = [row for row in session.ledger(scope).rows() if row.kind == "note"]
    return [session.body(row, scope).decode() for row in rows]


def in_order(path: Path) -> None:
    """Nothing waits, git and we find no fault, and what is read anew is what its commits say."""
    with Store(path) as store:
        report = verify(store)
        assert [str(finding) for finding in report.findings] == []
        for name in store.sessions():
            with StoredSession.open(store, name) as session:
                for scope in session.scopes():
                    assert problems(sent(session, scope)) == []


def sent(session: StoredSession, scope: str) -> list[dict[str, object]]:
    """What the next call would be sent, were a person to say something more."""
    bodies = Bodies(lambda row: session.body(row, scope), lambda row, suffix: session.file(row, suffix, scope))
    held = sendable(pieces(outline(session.ledger(scope)), bodies))
    piece = Piece(message=1 << 40, role="user", kind="user", body=b"and now?")
    messages: list[dict[str, object]] = formats.anthropic(formats.Prompt(pieces=[*held, piece]))["messages"]
    return messages


def parents(path: Path, scope: str) -> list[list[str]]:
    """Of each commit of a scope, oldest first, the subjects of its parents."""
    lines = git(path, "log", "--first-parent", "--reverse", "--format=%P", f"demo/{scope}").splitlines()
    return [[git(path, "log", "-1", "--format=%s", parent).strip() for parent in line.split()] for line in lines]


def journey(session: StoredSession) -> None:
    """main → a → b → main → a, with work in each and a switch inside a call."""
    session.append(*exchange(1))
    session.open_scope("a", "first")
    session.append(human("in a"), reply("", "n", "s"))
    session.note("noted in a call")
    session.open_scope("b", "second")
    session.append(results(result("n", "noted"), result("s", "ok")))
    session.append(reply("in b"))
    session.goto("main", "back")
    session.append(human("in main"), reply("yes"))
    session.goto("a", "once more")
    session.append(reply("end", "g"))
    session.note("the end")
    session.goto("main", "for good")
    session.append(results(result("g", "ok")))
