"""The database of an opencode that is at work, imported while it runs."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from ctxvc.recording.files import import_paths
from ctxvc.store.store import Store
from tests.hosts.opencode import sample
from tests.making.prompts import as_sent, bare

#: Half a minute where nothing else runs.
pytestmark = pytest.mark.timeout(1200)


def test_the_prompts_of_a_running_opencode_are_those_that_it_sent(store: Store) -> None:
    with TemporaryDirectory(dir="/tmp") as folder, sample.at_work(Path(folder, "machine")) as opencode:
        prompts = sample.work(opencode)
        outcomes = list(import_paths(store, [opencode.database]))
        again = opencode.say(next(iter(prompts)), "And again.", replies=[[{"type": "text", "text": "Yes."}]])
        more = list(import_paths(store, [opencode.database]))

    assert [outcome.error for outcome in outcomes + more] == [None] * 2 * len(prompts)
    assert sorted(outcome.units for outcome in more) == [0] * (len(prompts) - 1) + [1]
    first, fork, reverted, elsewhere = (f"opencode-{session[-8:]}" for session in prompts)
    assert as_sent(store, first) == bare(again)
    for session, scope, sent in zip(
        (fork, reverted, elsewhere), ("main", "rewind-1", "main"), list(prompts.values())[1:], strict=True
    ):
        assert as_sent(store, session, scope) == bare(json.loads(json.dumps(sent)))
