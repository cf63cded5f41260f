"""What the commands that look say: addresses, differences, costs, use, findings; each from the store itself."""

from __future__ import annotations

import gc
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.cli.terminal.prompt_text import Section, unified
from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Ledger
from ctxvc.core.ledger.wire import text_part
from ctxvc.core.view.budget import Budget
from ctxvc.errors import NotFound
from ctxvc.inspection import usage
from ctxvc.inspection.diff import difference
from ctxvc.session.session import Session
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.project.locate import FOLDER
from ctxvc.store.read import address as addresses
from ctxvc.store.read import revision as revisions
from ctxvc.store.store import Store
from ctxvc.tokens import media
from ctxvc.tokens.meter import Meter
from tests.cli.conftest import Run
from tests.making.damage import object_at

# --- addresses


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("B17", {"id": "B17"}),
        ("G3", {"id": "G3"}),
        ("B17@3fa9c1", {"id": "B17", "checksum": "3fa9c1"}),
        ("main:B17", {"scope": "main", "id": "B17"}),
        ("demo/main:B17@3fa9", {"session": "demo", "scope": "main", "id": "B17", "checksum": "3fa9"}),
        ("step:B17", {"scope": "step", "id": "B17"}),
        ("B18-1.png", {"id": "B18", "file": "1.png"}),
        ("B18-1.png@3fa9c1", {"id": "B18", "file": "1.png", "checksum": "3fa9c1"}),
    ],
)
def test_an_address_is_read_and_written_the_same(words: str, parts: dict[str, str]) -> None:
    address = addresses.parse(words)
    assert address == addresses.Address(**parts)
    assert str(address) == words


@pytest.mark.parametrize(
    "words", ["", "B17 ", "B1\n", "B", "B0", "B017", "b17", "17", "HEAD", "main", "step:12", "B17@", "B17@xyz",
              "G3-1.png", "a//c:B1", "/c:B1"]
)  # fmt: skip
def test_what_is_no_address_may_be_a_revision(words: str) -> None:
    assert addresses.parse(words) is None


@pytest.fixture
def store(project: Path) -> Any:
    with Store(project / ".ctxvc") as opened:
        yield opened


def find(store: Store, session: str, words: str, scope: str = "") -> addresses.Resolved:
    address = addresses.parse(words)
    assert address is not None
    return addresses.find(StoredSession.open(store, session, scope), address)


@pytest.mark.parametrize(
    ("session", "address", "scope", "where", "label"),
    [
        ("branched", "B3", "main", "main", "With a password"),
        ("branched", "B5", "main", "agent-1", "Look at the docs"),  # this scope has it not, another has
        ("branched", "B7", "main", "rewind-1", "With a key"),
        ("branched", "B1", "agent-1", "", "Add a login"),  # two scopes have it: the same bytes count once
        ("demo", "branched/agent-1:B5", "", "agent-1", "Look at the docs"),
    ],
)
def test_a_block_is_that_of_the_named_scope_then_of_this_one_then_of_the_session(
    store: Store, session: str, address: str, scope: str, where: str, label: str
) -> None:
    found = find(store, session, address, scope)
    assert found.row.label == label and (found.snapshot.scope == where or not where)


def test_a_checksum_must_be_that_of_the_block(store: Store) -> None:
    handle = find(store, "demo", "B1").row.handle
    assert find(store, "demo", handle).row.id == "B1"
    with pytest.raises(NotFound, match="checksum differs") as raised:
        find(store, "demo", "B1@000000")
    assert f"demo/main:{handle}" in raised.value.hint


def test_two_blocks_under_one_number_are_told_apart_by_their_checksums(store: Store) -> None:
    """As in clones that grew apart: two scopes have other blocks under one number, a third has none."""
    rows = {"main": find(store, "branched", "main:B3").row, "rewind-1": find(store, "branched", "rewind-1:B7").row}
    assert rows["main"].sha256 != rows["rewind-1"].sha256
    clash = msgspec.structs.replace(rows["rewind-1"], id="B3")
    with StoredSession.open(store, "branched", "rewind-1") as writer:
        writer.change(subject="as in a clone", op="step", actor="user", rows=[clash])
    session = StoredSession.open(store, "branched", "agent-1")

    with pytest.raises(NotFound, match="several") as raised:
        addresses.find(session, addresses.parse("B3"))

    handles = [f"main:{rows['main'].handle}", f"rewind-1:{clash.handle}"]
    assert all(f"branched/{handle}" in raised.value.hint for handle in handles)
    assert addresses.find(session, addresses.parse(clash.handle)).snapshot.scope == "rewind-1"


def test_a_group_is_found_like_a_block(store: Store) -> None:
    assert find(store, "demo", "G1").group.members == ("B8", "B9")
    assert find(store, "demo", "G1@a1b2").group.id == "G1"
    with pytest.raises(NotFound, match="checksum"):
        find(store, "demo", "G1@ffff")
    with pytest.raises(NotFound, match="no group G1"):
        find(store, "branched", "G1")


def test_looking_writes_nothing(run: Run, project: Path) -> None:
    """Not even what waits in a journal becomes a commit by it."""
    for counting in ("status", "sessions", "export"):  # what they count is kept, and the checksum of an export
        run(counting, folder=project)
    before = {path: path.read_bytes() for path in (project / ".ctxvc").rglob("*") if path.is_file()}

    commands = "sessions, status, context, log, show B1, show demo/main:B1, prompt, diff step:1, export, doctor, verify"
    commands += ", scopes, notes, notes --json"
    for arguments in map(str.split, commands.split(", ")):
        assert run(*arguments, folder=project).exit_code == 0

    after = {path: path.read_bytes() for path in (project / ".ctxvc").rglob("*") if path.is_file()}
    assert {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)} == set()


# --- differences


def moments(store: Store, *names: str) -> list[Ledger]:
    session = StoredSession.open(store, "demo")
    return [revisions.resolve(store, session, name).ledger for name in names]


def test_what_entered_and_left_is_told_in_order_and_backwards_with_its_sides_changed(store: Store) -> None:
    old, new = moments(store, "step:1", "HEAD")

    assert [(change.move, change.id, change.was, change.now) for change in difference(old, new)] == [
        ("left", "B6", "visible", "archived"),
        ("changed", "B8", "", "archived"),
        ("changed", "B9", "", "archived"),
        *(("entered", f"B{number}", "", "visible") for number in range(10, 16)),
        ("entered", "G1", "", "stub"),
    ]

    old, new = moments(store, "step:1", "HEAD")
    turned = {"entered": "left", "left": "entered", "changed": "changed"}

    forwards = [(change.id, change.move, change.was, change.now) for change in difference(old, new)]
    backwards = [(change.id, turned[change.move], change.now, change.was) for change in difference(new, old)]

    assert forwards == backwards


@pytest.mark.parametrize(
    ("block", "fields", "was", "now"),
    [("B1", {"state": "pinned"}, "visible", "pinned"), ("B8", {"group": "G2", "level": 2}, "archived", "archived")],
)
def test_a_block_that_is_pinned_or_moves_to_another_group_is_changed(
    store: Store, block: str, fields: dict[str, Any], was: str, now: str
) -> None:
    (old,) = moments(store, "HEAD")
    row = msgspec.structs.replace(old[block], **fields)
    (change,) = difference(old, old.with_rows([row]))
    assert (change.move, change.was, change.now, change.row) == ("changed", was, now, row)


def test_the_tokens_of_two_prompts_differ_by_what_moved(ask: Callable[..., Any]) -> None:
    """Where whole blocks enter and nothing leaves a stub, the sums agree."""
    told = ask("diff", "step:3", "step:4")
    assert {item["move"] for item in told["items"]} == {"entered"}
    assert told["after"]["tokens"] - told["before"]["tokens"] == sum(item["tokens"] for item in told["items"])


# --- costs


def costs(store: Store, revision: str = "HEAD") -> tuple[revisions.Snapshot, dict[str, Any], Meter]:
    meter = Meter(store)
    moment = revisions.resolve(store, StoredSession.open(store, "demo"), revision)
    return moment, meter.costs(moment), meter


def test_a_call_counts_its_tool_and_arguments_and_a_result_the_images_beside_it(store: Store) -> None:
    moment, found, meter = costs(store)
    arguments = moment.bodies.body(moment.ledger["B4"]).decode()
    assert found["B4"].body == meter.count("Read") + meter.count(arguments)
    moment, found, meter = costs(store)
    row = moment.ledger["B9"]
    assert row.files == ("1.png",)
    words = meter.count(moment.bodies.body(row).decode())
    assert found["B9"].body == words + media.image_tokens(56, 28)


def test_what_left_costs_its_stub_and_what_stays_its_body(store: Store) -> None:
    moment, found, meter = costs(store)
    assert found["B6"].shown == meter.count(moment.ledger["B6"].stub) < found["B6"].body
    assert found["B8"].shown == meter.count(moment.ledger.groups["G1"].stub)
    assert found["B9"].shown == 0
    assert found["B1"].shown == found["B1"].body


def test_the_dashboard_adds_up(ask: Callable[..., Any]) -> None:
    # The provider counts 1.2 times what we count where a recording shows it.
    for name, line in (("demo", 1000), ("branched", 1200), ("hostile", 1000)):
        told = ask("--session", name, "status")
        assert told["used"] == sum(told["recorded"].values()) + told["unrecorded"]
        assert told["conversation"] == sum(item["shown"] for item in told["items"]) * line // 1000
        assert told["percent"] == told["used"] * 100 // told["window"]


def test_of_many_blocks_old_neighbours_share_a_line_unless_all_are_asked_for(run: Run, tmp_path: Path) -> None:
    run("init", folder=tmp_path)
    with Store(tmp_path / ".ctxvc") as store:
        store.create_session("long")
        with StoredSession.open(store, "long") as session:
            for number in range(100):
                part = text_part(f"remark {number}", "user", "client")
                session.append(Message(role="user", parts=(part,), key=f"k{number}"))

    def lines(*arguments: str) -> list[str]:
        return [line for line in run(*arguments, folder=tmp_path).stdout.splitlines() if line.startswith("B")]

    folded, whole = lines("status"), lines("status", "--all")
    assert len(whole) == 100
    assert len(folded) < 40
    assert any("–" in line and "\trange\t" in line for line in folded)
    assert len(json.loads(run("status", "--json", folder=tmp_path).stdout)["items"]) == 100


# --- use


@pytest.mark.parametrize("by", ["kind", "tool", "turn", "file"])
def test_every_way_of_adding_up_gives_the_same_sum(ask: Callable[..., Any], by: str) -> None:
    told = ask("context", "--by", by)
    assert sum(item["tokens"] for item in told["items"]) == told["used"] == ask("status")["used"]
    assert sum(item["share"] for item in told["items"]) == pytest.approx(1)


def test_a_call_and_its_result_are_of_one_file(ask: Callable[..., Any]) -> None:
    told = {item["name"]: item["blocks"] for item in ask("context", "--by", "file")["items"]}
    assert told["app.py"] == 2
    assert told["tests/test_app.py"] == 2


def test_the_calls_of_all_scopes_are_told_each_once(run: Run, tmp_path: Path) -> None:
    def says(tokens: int) -> None:
        session.append({"role": "user", "content": "Go on."})
        usage = {"input_tokens": tokens, "output_tokens": 1}
        session.append({"role": "assistant", "content": "Well.", "model": "claude-haiku-4-5", "usage": usage})

    with Session.open(tmp_path / ".ctxvc", "calls") as session:
        says(1)
        session.open_scope("side", "to look")
        says(20)
        session.goto("main", "seen")
        says(300)

    every = json.loads(run("log", "--usage", "--json", folder=tmp_path).stdout)
    assert (every["scope"], every["calls"], every["fresh"]) == ("", 3, 321)
    assert sorted((item["scope"], item["fresh"]) for item in every["items"]) == [
        ("main", 1),
        ("main", 300),
        ("side", 20),
    ]
    for scope, fresh in (("main", 301), ("side", 21)):  # a line of reasoning has what came before it
        one = json.loads(run("log", scope, "--usage", "--json", folder=tmp_path).stdout)
        assert (one["scope"], one["fresh"]) == (scope, fresh)


def test_as_many_calls_are_told_of_as_are_asked_for(ask: Callable[..., Any]) -> None:
    every = ask("log", "--usage")
    some = ask("log", "--usage", "-n", "2")  # the newest commits are no calls
    assert every["calls"] > 2
    assert some["items"] == every["items"][:2]
    assert (some["calls"], some["read"]) == (2, sum(item["read"] for item in every["items"][:2]))
    assert ask("log", "--usage", "-n", "0")["items"] == []


def test_thresholds_are_ahead_or_passed() -> None:
    thresholds = usage.thresholds(used=130_000, budget=Budget(200_000))
    assert [(threshold.percent, threshold.ahead) for threshold in thresholds] == [
        (60, -10_000),
        (85, 40_000),
        (98, 66_000),
    ]


def test_an_empty_context_has_no_shares(run: Run, tmp_path: Path) -> None:
    run("init", folder=tmp_path)
    with Store(tmp_path / ".ctxvc") as store:
        store.create_session("empty")
    for words in ("context", "status", "prompt", "export", "log", "show", "diff HEAD", "sessions", "compact"):
        assert run(*words.split(), folder=tmp_path).exit_code == 0, words


def test_damaged_arguments_of_a_call_are_of_no_file(store: Store) -> None:
    for arguments in (b"[1,2]", b'{"path":7}', b'{"path":""}', b'"x"'):
        assert usage._file(arguments) == ""


def test_what_shows_the_prompt_of_now_needs_no_commit_of_long_ago(run: Run, project: Path) -> None:
    store = project / FOLDER
    for pack in [*(store / "objects/pack").glob("*.pack")]:
        data = pack.read_bytes()
        for part in pack.parent.glob(f"{pack.stem}.*"):
            part.unlink()
        subprocess.run(["git", f"--git-dir={store}", "unpack-objects", "-q"], input=data, check=True)
    with Store(store) as opened:
        oldest = [*opened.first_parents(opened.tips("demo")["main"])][-1]
        shown = {words: run(*words.split(), folder=project).stdout for words in ("status --all", "context", "prompt")}
        object_at(opened, oldest).unlink()

    assert run("log", folder=project).exit_code == 3
    assert run("gc", folder=project).exit_code == 3
    for words, before in shown.items():
        result = run(*words.split(), folder=project)
        assert (result.exit_code, result.stdout) == (0, before), words
    assert run("recover", "B1", folder=project).exit_code == 0


# --- the doctor


def _items(run: Run, folder: Path) -> list[dict[str, str]]:
    result = run("doctor", "--json", folder=folder)
    found: list[dict[str, str]] = json.loads(result.stdout)["items"]
    assert result.exit_code in (0, 3), result.stderr
    return found


def findings(run: Run, folder: Path) -> dict[str, dict[str, str]]:
    return {item["check"]: item for item in _items(run, folder)}


def test_a_healthy_store_has_no_problem(run: Run, project: Path) -> None:
    assert run("doctor", folder=project).exit_code == 0
    told = findings(run, project)
    assert {item["level"] for item in told.values()} == {"ok", "note"}
    assert [check for check, item in told.items() if item["level"] == "note"] == ["session demo"]
    assert "1 record" in told["session demo"]["found"]


def test_without_a_store_the_doctor_says_how_to_get_one(run: Run, tmp_path: Path) -> None:
    told = findings(run, tmp_path)
    assert (told["store"]["level"], told["store"]["mend"]) == ("note", "ctxvc init")


def test_the_doctor_finds_what_is_wrong_and_says_what_mends_it(run: Run, project: Path) -> None:
    path = project / ".ctxvc"
    path.chmod(0o755)
    for name in ("objects/pack/tmp_pack_123", "ctxvc/journal/demo~unreadable-99"):
        (path / name).write_bytes(b"half")
        (path / name).chmod(0o600)

    told = {item["found"]: item for item in _items(run, project) if item["check"] == "contents"}

    def mend(text: str) -> str:
        (found,) = (item["mend"] for what, item in told.items() if text in what)
        return found

    assert mend("others can enter the store") == f"chmod 700 {path}"
    assert "ctxvc gc" in mend("tmp_pack_123: left by a killed writer")
    assert "--repair" in mend("demo~unreadable-99: unreadable bytes of a journal")
    run("gc", folder=project)
    assert not [item for item in _items(run, project) if "killed writer" in item["found"]]


@pytest.mark.parametrize("spoilt", ["HEAD", "config", "ctxvc/journal/demo", "objects/pack"])
def test_the_doctor_itself_never_fails(run: Run, project: Path, spoilt: str) -> None:
    path = project / ".ctxvc" / spoilt
    gc.collect()  # while a repository is left, libgit2 knows its packs by their paths: maybe those of the test before
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        file.chmod(0o600)
        file.write_bytes(b"nonsense, and more of it than a head is long")
    assert any(item["level"] == "problem" for item in findings(run, project).values())


def test_an_old_git_is_a_problem(run: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctxvc.store.git.program.version", lambda: "2.30.2")
    assert findings(run, project)["git"]["level"] == "problem"


@given(st.data())
def test_a_diff_of_prompts_makes_the_one_of_the_other(data: st.DataObject) -> None:
    lines = st.lists(st.sampled_from(["  a", "  b", "  c"]), min_size=1, max_size=12)
    names = st.lists(st.integers(0, 9), unique=True, max_size=8).map(sorted)
    old, new = ([Section(f"B{name}", f"user B{name}", data.draw(lines)) for name in data.draw(names)] for _ in range(2))
    before, after = ([line for section in side for line in section.text] for side in (old, new))
    texts: list[str] = []
    at = 0
    for line in unified(old, new):
        if match := re.fullmatch(r"@@ -([0-9]+),([0-9]+) \+([0-9]+),([0-9]+) @@", line):
            start, size, new_start, new_size = map(int, match.groups())
            texts += before[at : start - bool(size)]
            at = start - bool(size)
            assert len(texts) == new_start - bool(new_size)
            continue
        if line[0] != "+":
            assert before[at] == line[1:]
            at += 1
        if line[0] != "-":
            texts.append(line[1:])

    assert texts + before[at:] == after
    assert old != new or not [*unified(old, new)]


def test_a_diff_of_long_prompts_takes_linear_time() -> None:
    old = [Section("B1", "user B1", [f"  {number % 7}" for number in range(20_000)])]
    new = [Section("B1", "user B1", [f"  {number % 5}" for number in range(20_000)])]
    assert sum(1 for _ in unified(old, new)) > 33_000


def test_what_a_cut_took_out_is_a_difference(run: Run, project: Path) -> None:
    """Its row is as it was: only the cut says that it is not sent any more."""
    tip = json.loads(run("log", "-n", "1", "--json", folder=project).stdout)["items"][0]["commit"]
    assert run("restore", "B6", folder=project).exit_code == 0
    items = json.loads(run("diff", tip, "--json", folder=project).stdout)["items"]
    assert {"move": "left", "id": "B2", "was": "visible", "now": "cut"}.items() <= items[0].items()


def test_undo_takes_back_what_recover_added(run: Run, project: Path) -> None:
    before = run("export", folder=project).stdout
    assert run("recover", "B6", "--lines", "1:2", "--add", folder=project).exit_code == 0
    assert run("export", folder=project).stdout != before
    result = run("undo", folder=project)
    assert result.stdout.startswith("undone: recover B6")
    assert run("export", folder=project).stdout == before
    assert run("redo", folder=project).exit_code == 0
    assert "assert add(0, 1)" in run("export", folder=project).stdout


@pytest.mark.parametrize("ranked", [(), ("--rank",)])
def test_a_block_is_as_old_as_its_step_whatever_was_done_since(
    ranked: tuple[str, ...], run: Run, project: Path
) -> None:
    assert run("note", "-m", "much later", "--session", "demo", folder=project).exit_code == 0

    def hits(*when: str) -> str:
        return run("grep", *ranked, *when, "app", "--session", "demo", folder=project).stdout

    assert "B1" in hits("--until", "2026-04-01")
    assert "B1" not in hits("--since", "2026-04-01")
