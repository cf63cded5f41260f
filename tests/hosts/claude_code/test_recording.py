"""The plugin records what the real client does, and the client goes on as without it."""

from __future__ import annotations

from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from tests.hosts.claude_code import scripted
from tests.hosts.claude_code.machine import Machine
from tests.messages_api import call, text, thought


def test_a_turn_with_calls_is_recorded_to_its_last_word(every: Machine) -> None:
    every.run(
        "Print the needle.",
        [thought("I print it."), call("Bash", command="echo needle-7431", description="print")],
        [text("It is printed.")],
    )
    every.settle()

    assert "needle-7431" in scripted.text(every.requests()[-1])
    with Store(every.store) as store:
        stored = StoredSession.open(store, store.sessions()[0])
        ledger = stored.ledger()
        said = {stored.body(row).decode() for row in ledger.rows()}
        stored.leave()
    assert {"Print the needle.", "needle-7431", "It is printed."} <= said
