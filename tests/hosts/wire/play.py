"""Clients at work: straight at a scripted upstream, through a proxy, or wrapped; and all that passed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.hosts.coding import ROOT
from tests.hosts.wire import agents
from tests.hosts.wire.agents import Client, Place, Step
from tests.hosts.wire.model import Script
from tests.hosts.wire.tap import Passed, Tap, tapped
from tests.hosts.wire.upstream import form_of, serve

#: Seconds that a client may take for one run, on a machine with other work.
_PATIENCE = 400
#: What differs from run to run: ids, times, counts, and how the screen was filled.
_CHANCE = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27,}|ses_\w+|\b[0-9a-f]{7,}\b|[0-9]+(\.[0-9]+)?[smk]?")


@dataclass
class Run:
    """One run of a client that has ended."""

    step: Step
    code: int
    out: str
    err: str
    #: How much of the script was left.
    left: int
    summaries: int
    #: What was asked beyond the script.
    beyond: Sequence[str]


@dataclass
class Played:
    """A client's runs, and what passed: where it connected to, and where the upstream was reached."""

    place: Place
    runs: list[Run] = field(default_factory=list)
    near: Tap | None = None
    far: Tap | None = None

    def check(self) -> None:
        """Every run did what the script says."""
        for run in self.runs:
            shown = (run.step.arguments, run.out[-2000:], run.err[-2000:], run.beyond)
            assert (run.code, run.left) == (0, 0), shown
            assert bool(run.summaries) == run.step.compacts, shown

    def paths(self) -> list[str]:
        """Where requests reached the upstream."""
        assert self.far
        return sorted(one.path for one in self.far.passed() if not one.header("upgrade"))

    def calls(self) -> list[Passed]:
        """The calls of a model that were answered: not the counts of tokens, nor what is beside them."""
        assert self.far
        answered = [one for one in self.far.passed() if one.method == "POST" and one.status == 200]
        return [one for one in answered if not form_of(one.path).endswith("count")]

    def outputs(self) -> list[tuple[int, list[str]]]:
        """Exit status and lines of output of each run, without what is by chance, as the order of what is parallel."""
        return [(run.code, shown(run.out, self.place)) for run in self.runs]


def shown(out: str, place: Place) -> list[str]:
    """The lines of an output without what is by chance, as the order of what is parallel."""
    return sorted(_CHANCE.sub("#", out.replace(str(place.folder), ".")).splitlines())


@contextmanager
def straight(client: Client) -> Iterator[Played]:
    """The client at the upstream itself."""
    with laid(client) as (place, env), serve(script := Script()) as upstream, tapped(upstream.url) as tap:
        yield _played(client, place, {**env, **filled(client, tap.url)}, script, pointed(client, tap.url), tap, tap)


@contextmanager
def proxied(client: Client) -> Iterator[Played]:
    """The client at a proxy, with taps on both sides of it; the upstream compresses where the client takes it."""
    with (
        laid(client) as (place, env),
        serve(script := Script(), compressed=True) as upstream,
        between_taps(place, upstream.url) as (url, near, far),
    ):
        yield _played(client, place, {**env, **filled(client, url)}, script, pointed(client, url), near, far)


@contextmanager
def between_taps(place: Place, upstream: str) -> Iterator[tuple[str, Tap, Tap]]:
    """A proxy for a place's project with a tap on each side: the address for clients, and the taps."""
    with tapped(upstream) as far, _proxy(place, far.url) as address:
        origin, _, key = address.rpartition("/")
        with tapped(origin) as near:
            yield f"{near.url}/{key}", near, far


def check_unchanged(near: Tap, far: Tap) -> None:
    """What went in came out, both ways and byte for byte, but for the host that was asked and the key in the path."""
    sent = [one for one in near.passed() if not one.header("upgrade")]
    assert sorted(map(_request, sent), key=repr) == sorted(map(_request, far.passed()), key=repr)
    # WebSockets end at the proxy.
    answered = [one for one in near.answers if not one.startswith(b"HTTP/1.1 426 ")]
    assert _answers(answered) == _answers(far.answers)


def _answers(connections: Sequence[bytes]) -> Sequence[bytes]:
    """What came back, in no order. A client that has all it wants may go before the mark of the end arrives."""
    return sorted(one.removesuffix(b"0\r\n\r\n") for one in connections if one)


def _request(passed: Passed) -> tuple[object, ...]:
    headers = [item for item in passed.headers if item[0] != "host"]
    return passed.method, re.sub(r"^/[\w-]{20,}(?=/)", "", passed.target), passed.body, headers


@contextmanager
def wrapped(client: Client) -> Iterator[Played]:
    """The client by `ctxvc wrap`, which points it; its own variables name the upstream."""
    with laid(client) as (place, env), serve(script := Script()) as upstream, tapped(upstream.url) as far:
        command = wrapping(client, far.url)
        own = {**env, **filled(client, far.url), "PYTHONPATH": str(ROOT)}
        yield _played(client, place, own, script, command, None, far)


def wrapping(client: Client, url: str, *options: str) -> Sequence[str]:
    """The client's command behind `ctxvc wrap` with these options, in front of an upstream."""
    return sys.executable, "-m", "ctxvc", "wrap", *options, *_upstreams(url), client.wrapped


@contextmanager
def laid(client: Client) -> Iterator[tuple[Place, dict[str, str]]]:
    """A place for the client, made, and its environment there."""
    with tempfile.TemporaryDirectory(prefix="ctxvc-wire-", ignore_cleanup_errors=True) as folder:
        place = Place(Path(folder))
        place.make()
        client.prepare(place)
        yield place, agents.environment(client, place)


def filled(client: Client, url: str) -> dict[str, str]:
    """The client's own variables, for an upstream."""
    return {name: value.replace("{url}", url) for name, value in client.env.items()}


def pointed(client: Client, url: str) -> Sequence[str]:
    """The client's command, for an upstream."""
    return client.program, *(argument.replace("{url}", url) for argument in client.arguments)


def _upstreams(url: str) -> Iterator[str]:
    for name, base in {"anthropic": "", "openai": "/v1", "gemini": ""}.items():
        yield from ("--upstream", f"{name}={url}{base}")


@contextmanager
def _proxy(place: Place, url: str) -> Iterator[str]:
    """A proxy for the place's project; its address."""
    command = (sys.executable, "-m", "ctxvc", "-C", place.project, "proxy", "--json", *_upstreams(url))
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(place.home), "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8"}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            line = process.stdout.readline()
            assert line, process.communicate()[1]
            yield json.loads(line)["address"]
        finally:
            process.terminate()
            process.communicate(timeout=60)


def _played(
    client: Client,
    place: Place,
    env: Mapping[str, str],
    script: Script,
    command: Sequence[str],
    near: Tap | None,
    far: Tap,
) -> Played:
    played = Played(place, near=near, far=far)
    for step in client.steps(place):
        step.before()
        script.begin(step.replies, step.sub, compacts=step.compacts)
        result = subprocess.run(
            [*command, *step.arguments],
            cwd=place.project,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
        left = len(script.main) + len(script.sub)
        played.runs.append(
            Run(step, result.returncode, result.stdout, result.stderr, left, script.summaries, list(script.beyond))
        )
    return played
