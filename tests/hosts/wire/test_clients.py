"""Real clients at a scripted upstream: straight, through the proxy, and wrapped. Nothing that they see or send differs.

A client that cannot be installed where the tests run is skipped with the reason.
"""

from __future__ import annotations

import pytest

from tests.hosts.wire import play, recorded
from tests.hosts.wire.agents import CLIENTS, Client

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


def test_the_upstream_gets_what_the_client_sends_and_the_client_what_the_upstream_answers(client: Client) -> None:
    with play.proxied(client) as played:
        played.check()
        assert played.near
        assert played.far
        play.check_unchanged(played.near, played.far)


def test_a_wrapped_client_ends_and_prints_as_without_and_is_recorded_exactly(client: Client) -> None:
    with play.straight(client) as straight:
        straight.check()
        outputs, paths = straight.outputs(), straight.paths()
    with play.wrapped(client) as wrapped:
        wrapped.check()
        assert wrapped.outputs() == outputs
        assert wrapped.paths() == paths
        recorded.check(wrapped.place.project / ".ctxvc", wrapped.calls(), client.sessions)
