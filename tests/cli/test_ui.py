"""`ui`: who may ask, what is answered, and what is changed only after it was shown."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from ctxvc.cli.page.live import Access, Live, Shared
from ctxvc.cli.remotes import remote_sessions
from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.wire import text_part
from ctxvc.loopback import Server
from ctxvc.session.session import Session
from ctxvc.sharing import remotes
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.project.locate import FOLDER
from ctxvc.store.store import Store
from tests.cli.conftest import Run, answer


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Browser:
    """A browser that has opened the address, or has no cookie yet."""

    def __init__(self, server: Server, access: Access) -> None:
        self.server, self.access = server, access
        self.cookie = ""

    def ask(self, path: str, body: object = None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        sent = {**({"Cookie": self.cookie} if self.cookie else {}), **headers}
        connection.request("GET" if body is None else "POST", path, body and json.dumps(body), sent)
        response = connection.getresponse()
        answer = Answer(
            response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
        )
        connection.close()
        return answer

    def open(self) -> Answer:
        answer = self.ask(f"/{self.access.query}")
        self.cookie = answer.headers.get("set-cookie", "").partition(";")[0]
        return answer


def serving(project: Path, *, edit: bool, shared: Shared | None = None) -> Generator[Browser]:
    errors: list[Exception] = []
    access = Access()
    live = Live(lambda: Store(project / FOLDER), access, project="p", edit=edit, shared=shared)
    server = Server(
        ("127.0.0.1", 0), token=access.token, answer=live.answer, report=errors.append, credential=access.credential
    )
    access.port = server.port
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield Browser(server, access)
    finally:
        server.stop()
        thread.join()
    assert not errors, errors


@pytest.fixture
def browser(project: Path) -> Iterator[Browser]:
    yield from serving(project, edit=False)


@pytest.fixture
def editor(project: Path) -> Iterator[Browser]:
    for browser in serving(project, edit=True):
        browser.open()
        yield browser


def test_the_address_opens_the_page_once_and_for_one_browser(browser: Browser) -> None:
    assert browser.ask("/").status == 401
    assert browser.ask("/?t=wrong").status == 401
    assert browser.ask(f"/api/sessions{browser.access.query}").status == 401, "the token is for the page alone"
    address = browser.access.query
    first = browser.open()
    assert (first.status, first.headers["location"]) == (303, "/")
    assert "HttpOnly" in first.headers["set-cookie"] and "SameSite=Strict" in first.headers["set-cookie"]
    page = browser.ask("/")
    assert page.status == 200 and page.body.startswith(b"<!")
    browser.cookie = ""
    assert browser.ask(f"/{address}").status == 401


def test_a_page_of_another_origin_is_not_answered(browser: Browser) -> None:
    browser.open()
    assert browser.ask("/api/sessions", Origin="http://evil.example").status == 403
    assert browser.ask("/api/sessions", Host="evil.example").status == 421
    assert browser.ask("/api/sessions").status == 200


def test_all_sessions_are_listed_and_each_has_its_page(browser: Browser) -> None:
    browser.open()
    answer = browser.ask("/api/sessions").json
    assert {session["id"] for session in answer["sessions"]} == {"demo", "branched", "hostile"}
    assert browser.ask("/api/project").json["edit"] is False
    for session in answer["sessions"]:
        page = browser.ask(f"/api/report?session={session['id']}")
        assert page.status == 200 and page.json["session"] == session["id"]
    assert browser.ask("/api/report?session=%2e%2e%2fx").status == 404
    assert browser.ask("/api/report").status == 404
    assert browser.ask("/nowhere").status == 404


def test_what_was_spent_is_answered_as_stats_has_it(browser: Browser, run: Run, project: Path) -> None:
    browser.open()
    for by in ("day", "tool"):
        told = answer(run, project, "stats", "--by", by)
        page = browser.ask(f"/api/stats?by={by}").json
        assert page["groups"] == {by: told}
    assert browser.ask("/api/stats?by=%3Cscript%3E").status == 400


def test_a_list_that_takes_too_long_comes_in_parts(
    browser: Browser, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctxvc.cli.page.live._LISTING", 0.0)
    browser.open()
    answers = [browser.ask("/api/sessions").json for _ in range(3)]
    assert [(len(answer["sessions"]), answer["missing"]) for answer in answers] == [(1, 2), (2, 1), (3, 0)]
    for name in ("demo", "branched"):
        with Store(project / FOLDER) as store, StoredSession.open(store, name) as stored:
            stored.append(Message(role="user", parts=(text_part("one more", "user", "human"),)))
    again = browser.ask("/api/sessions").json
    assert again["missing"] == 0, "what changed is listed as it was"
    assert sum(one["blocks"] for one in again["sessions"]) == sum(one["blocks"] for one in answers[2]["sessions"]) + 1


def test_a_running_session_is_followed_within_a_second(
    browser: Browser, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser.open()
    blocks = browser.ask("/api/report?session=demo").json["blocks"]["n"]
    first = browser.ask("/api/events?session=demo&x=1", **{"Last-Event-ID": "an older state"})
    state = next(line[4:] for line in first.body.decode().splitlines() if line.startswith("id: "))
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            with Store(project / FOLDER) as store, StoredSession.open(store, "demo") as stored:
                stored.append(Message(role="user", parts=(text_part("one more", "user", "human"),)))

    monkeypatch.setattr("ctxvc.cli.page.live.time", SimpleNamespace(monotonic=time.monotonic, sleep=pause))
    answer = browser.ask("/api/events?session=demo", **{"Last-Event-ID": state})
    assert b"event: changed" in answer.body and answer.headers["content-type"] == "text/event-stream"
    assert len(pauses) == 2 and max(pauses) < 1
    assert browser.ask("/api/report?session=demo").json["blocks"]["n"] == blocks + 1


def test_nothing_is_changed_without_edit(browser: Browser, project: Path) -> None:
    browser.open()
    for path in ("/api/plan", "/api/apply"):
        refused = browser.ask(path, {"session": "demo", "verb": "pin", "blocks": ["B1"], "plan": "x"})
        assert refused.status == 403 and b"ui --edit" in refused.body
    assert browser.ask("/api/plan").status == 404


def test_a_change_is_shown_first_and_made_when_asked_for_again(editor: Browser, project: Path) -> None:
    before = _states(project)
    planned = editor.ask("/api/plan", {"session": "demo", "verb": "pin", "blocks": ["B10"]}).json
    assert planned["problem"] is None and any(line.startswith("B10 becomes pinned") for line in planned["plan"])
    assert _states(project) == before, "a plan changes nothing"
    applied = editor.ask("/api/apply", {"session": "demo", "plan": planned["token"]})
    assert applied.json["done"] is True
    assert _states(project) == {**before, "B10": "pinned"}
    assert editor.ask("/api/apply", {"session": "demo", "plan": planned["token"]}).status == 400
    undo = editor.ask("/api/plan", {"session": "demo", "verb": "undo"}).json
    assert "B10" in undo["plan"][0]
    assert editor.ask("/api/apply", {"session": "demo", "plan": undo["token"]}).json["done"] is True
    assert _states(project) == before


def test_a_plan_is_not_applied_to_what_has_changed_since(editor: Browser, project: Path) -> None:
    planned = editor.ask("/api/plan", {"session": "demo", "verb": "pin", "blocks": ["B10"]}).json
    with Session.open(project / FOLDER, "demo", actor="user") as session:
        session.pin("B7")
    refused = editor.ask("/api/apply", {"session": "demo", "plan": planned["token"]})
    assert refused.status == 409 and "has changed" in refused.json["problem"]
    assert _states(project)["B10"] == "visible"


@pytest.mark.parametrize(
    "wanted",
    [
        {"session": "demo", "verb": "purge", "blocks": ["B1"]},
        {"session": "demo", "verb": "delete", "blocks": ["B1"]},
        {"session": "demo", "verb": "archive", "blocks": ["nonsense " * 50]},
        {"session": "demo", "verb": "archive", "blocks": "B1"},
        ["demo"],
    ],
)
def test_what_makes_no_sense_is_refused_with_a_reason(editor: Browser, project: Path, wanted: object) -> None:
    before = _states(project)
    answer = editor.ask("/api/plan", wanted)
    assert answer.json["problem"] and not answer.json.get("token")
    assert _states(project) == before


def test_a_persons_words_stay_and_the_page_says_why(editor: Browser) -> None:
    answer = editor.ask("/api/plan", {"session": "demo", "verb": "archive", "blocks": ["B1"]}).json
    assert answer["token"] == "" and "B1" in answer["problem"]


def test_the_command_prints_the_address_and_ends_when_told(project: Path) -> None:
    command = [sys.executable, "-m", "ctxvc", "-C", str(project), "ui", "--no-open"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    assert address.startswith("http://127.0.0.1:") and "/?t=" in address
    process.terminate()
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130 and "Traceback" not in errors


def _states(project: Path) -> dict[str, str]:
    with Store(project / FOLDER) as store:
        return {row.id: row.state for row in StoredSession.open(store, "demo").ledger().rows()}


def test_what_a_remote_has_is_shown_as_it_is_there_and_changed_by_nobody(
    run: Run, project: Path, server: Path, other: Path
) -> None:
    secret = "ghp_" + "x7Kq2mZp9Lw4Rt8Vb3Nc6Yd1Sf5Gh0Jk2AbE"
    run("note", "-m", f"the key is {secret}", "--session", "demo", folder=project)
    for folder, command in ((project, "push"), (other, "pull")):
        run("init", folder=folder)
        assert run("remote", "add", server, "--as", folder.name, "--yes", folder=folder).exit_code == 0
        assert run(command, folder=folder).exit_code == 0
    run("note", "-m", "nobody else knows this", "--session", "demo", folder=other)
    with Store(other / FOLDER) as store:
        store.create_session("mine")
        remote = remotes.find(store)
    before = (run("stats", "--remote", "--json", folder=other).stdout, run("log", "--json", folder=other).stdout)
    with closing(serving(other, edit=False, shared=lambda: remote_sessions.tips(remote))) as browsers:
        browser = next(browsers)
        browser.open()
        while (listed := browser.ask("/api/sessions?rest=1").json)["missing"]:
            pass
        assert {one["id"] for one in listed["sessions"]} == {"demo", "branched", "hostile"}
        page = browser.ask("/api/report?session=demo").body.decode()
        assert secret not in page and "nobody else knows" not in page
        assert browser.ask("/api/report?session=mine").status == 404
        stats = browser.ask("/api/stats?by=person").json["groups"]["person"]["items"]
        assert [item["name"] for item in stats] == ["project"]
        for path in ("/api/plan", "/api/apply"):
            assert browser.ask(path, {"session": "demo", "verb": "archive", "blocks": ["B2"], "plan": ""}).status == 403
    assert before == (
        run("stats", "--remote", "--json", folder=other).stdout,
        run("log", "--json", folder=other).stdout,
    )
    assert run("ui", "--edit", "--remote", "origin", folder=other).exit_code == 2
