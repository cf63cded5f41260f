"""Real clients at a scripted upstream: straight, through the proxy, and wrapped. Nothing that they see or send differs.

A client that cannot be installed where the tests run is skipped with the reason.
"""

from __future__ import annotations

import pytest

from tests.hosts.wire import play
from tests.hosts.wire.agents import CLIENTS, Client
from tests.hosts.wire.tap import Passed

#: Clients work for minutes where others do, too.
pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(params=CLIENTS, ids=lambda client: client.name)
def client(request: pytest.FixtureRequest) -> Client:
    """Each client in turn, installed."""
    chosen: Client = request.param
    try:
        chosen.folders()
    except (RuntimeError, FileNotFoundError) as error:
        pytest.skip(f"{chosen.name} cannot be installed here: {error}")
    return chosen


def _request(passed: Passed) -> tuple[object, ...]:
    """All of a request but the host that was asked, and the key before its path."""
    path = passed.target.split("/", 2)
    target = f"/{path[2]}" if len(path) > 2 and len(path[1]) > 20 else passed.target
    return passed.method, target, passed.body, [item for item in passed.headers if item[0] != "host"]


def test_the_upstream_gets_what_the_client_sends_and_the_client_what_the_upstream_answers(client: Client) -> None:
    with play.proxied(client) as played:
        played.check()
        assert played.near
        assert played.far
        near = [one for one in played.near.passed() if not one.header("upgrade")]
        far = played.far.passed()
        assert play.sorted_by(near, _request) == play.sorted_by(far, _request)
        answers = [one for one in played.near.answers if not one.startswith(b"HTTP/1.1 426 ")]
        assert sorted(filter(None, answers)) == sorted(filter(None, played.far.answers))
        # The proxy takes no WebSocket, which no client has asked for but Codex.
        assert len(answers) == len(played.near.answers) or client.wrapped == "codex"


def test_a_wrapped_client_ends_and_prints_as_without(client: Client) -> None:
    with play.straight(client) as straight:
        straight.check()
        outputs, asked = straight.outputs(), _asked(straight)
    with play.wrapped(client) as wrapped:
        wrapped.check()
        assert wrapped.outputs() == outputs
        assert _asked(wrapped) == asked


def _asked(played: play.Played) -> list[object]:
    """The requests that reached the upstream, by method and path."""
    assert played.far
    return play.sorted_by([one for one in played.far.passed() if not one.header("upgrade")], lambda one: one.path)
