"""What somebody does who edits: groups."""

from __future__ import annotations

import time

import msgspec
import pytest

from ctxvc.core.ledger.ledger import Group, Row
from ctxvc.store import format as fmt
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from ctxvc.store.verify.groups import disagreements
from tests.making.conversation import exchange
from tests.making.damage import Files, damaged, edit_row, found, head, leave_as_group, messages, rewrite, tree_files


@pytest.mark.parametrize(
    ("group", "what"),
    [
        (Group(id="G1", members=("B5", "B6")), "B7 is in G1, which does not contain it"),
        (Group(id="G1", members=("B5", "B6", "B7", "B8")), "G1 has B8, which is in no group"),
        (Group(id="G1", members=("B5", "B6", "B7", "B99")), "G1 has B99, which does not exist"),
        (Group(id="G1", members=("B5", "B6", "B7", "G7")), "G1 has G7, which does not exist"),
        (Group(id="G1", members=("B5", "B6", "B7", "B7")), "no members, or a duplicate one"),
        (Group(id="G1", members=("B5", "B6", "B7"), group="G9"), "G1 is in G9, which does not exist"),
        (Group(id="G1", members=("B5", "B6", "B7"), before="B99"), "the stub of G1 needs B99"),
        (Group(id="G1", members=("B5", "B6", "B7"), summary=("x",)), "the stub of G1 needs x"),
        (Group(id="G5", members=("B5", "B6", "B7")), "which does not exist"),
    ],
)
def test_a_group_that_its_members_know_nothing_of_is_found(full: Store, group: Group, what: str) -> None:
    commit = rewrite(full, {"ledger/groups.jsonl": fmt.encode_groups([group])})

    damaged(full, what, commit=commit, path="ledger/groups.jsonl")


def test_a_group_inside_one_of_its_own_level_is_found(full: Store) -> None:
    groups = [Group(id="G1", members=("B5", "B6", "B7"), group="G2"), Group(id="G2", members=("G1",))]

    rewrite(full, {"ledger/groups.jsonl": fmt.encode_groups(groups)})

    damaged(full, "G2 has level 1 and contains G1 of level 1")


def test_a_row_that_left_its_group_by_itself_is_found(full: Store) -> None:
    edit_row(full, "B5", group="")
    damaged(full, "G1 has B5, which is in no group")

    edit_row(full, "B9", group="G1")
    damaged(full, "B9 is in G1, which does not contain it", block="B9")


def _nested(store: Store) -> None:
    """G1 of B5 to B7 in G3, and G2 of B9 and B10."""
    store.create_session("demo")
    with StoredSession.open(store, "demo") as session:
        session.append(*messages(4))
        leave_as_group(session, "B5", "B6", "B7", name="G1")
        leave_as_group(session, "B9", "B10", name="G2")
        inner = msgspec.structs.replace(session.ledger().groups["G1"], group="G3")
        outer = Group(id="G3", members=("G1",), level=2, stub="[archived G3]", removed_by="user")
        session.change(subject="again", op="archive", actor="user", groups=[inner, outer])
        session.append(*exchange(5))  # the newest commit leaves the groups as they were


@pytest.mark.parametrize(
    ("name", "fields", "what"),
    [
        ("G1", {"group": ""}, "G3 has G1, which is in no group"),
        ("G1", {"group": "G2"}, "G1 is in G2, which does not contain it"),
        ("G1", {"level": 2}, "G3 has level 2 and contains G1 of level 2"),
        ("G3", {"level": 1}, "G3 has level 1 and contains G1 of level 1"),
        ("G1", None, "G3 has G1, which does not exist"),
        ("G3", None, "G1 is in G3, which does not exist"),
        ("G3", {"members": ("G1", "G2")}, "G3 has G2, which is in no group"),
        ("G2", {"members": ("B9",)}, "B10 is in G2, which does not contain it"),
        ("G2", {"members": ("B9", "B10", "B11")}, "G2 has B11, which is in no group"),
        ("G2", None, "B9 is in G2, which does not exist"),
    ],
)
def test_groups_in_groups_that_disagree_are_found(
    store: Store, name: str, fields: dict[str, object] | None, what: str
) -> None:
    _nested(store)
    assert found(store) == []

    def edit(files: dict[str, bytes]) -> Files:
        groups = fmt.decode_groups(files["ledger/groups.jsonl"], "")
        if fields is None:
            del groups[name]
        else:
            groups[name] = msgspec.structs.replace(groups[name], **fields)
        return {"ledger/groups.jsonl": fmt.encode_groups(groups.values())}

    damaged(store, what, commit=rewrite(store, edit), path="ledger/groups.jsonl")


@pytest.mark.parametrize(
    ("block", "group", "what"),
    [
        ("B9", "", "G2 has B9, which is in no group"),
        ("B9", "G1", "G2 has B9, which is in G1"),
        ("B9", "G1", "B9 is in G1, which does not contain it"),
        ("B1", "G2", "B1 is in G2, which does not contain it"),
        ("B1", "G9", "B1 is in G9, which does not exist"),
    ],
)
def test_a_row_that_changes_its_group_by_itself_is_found(store: Store, block: str, group: str, what: str) -> None:
    _nested(store)

    damaged(store, what, commit=edit_row(store, block, group=group), path="ledger/groups.jsonl")


def test_a_group_whose_line_stands_there_twice_counts_as_the_last_one_says(store: Store) -> None:
    _nested(store)

    path = "ledger/groups.jsonl"
    whole, lines = head(store), tree_files(store, head(store))[path]
    other = lines.splitlines(keepends=True)[0].replace(b'"B5",', b"")

    rewrite(store, {path: other + lines})
    assert found(store) == []

    store.repository.references.create("refs/heads/demo/main", whole, force=True)
    rewrite(store, {path: lines + other})
    damaged(store, "B5 is in G1, which does not contain it", commit=head(store), block="B5")


def test_one_group_of_twenty_thousand_blocks_is_looked_through_once(store: Store) -> None:
    """Twice as many blocks in a group take about twice as long, and not four times."""
    took = []
    for size in (10_000, 20_000):
        names = [f"B{number}" for number in range(1, size + 1)]
        row = Row(id="B1", kind="user", role="user", origin="human", msg=1, step=1, turn=1, bytes=1, sha256="0" * 64)
        rows = {name: msgspec.structs.replace(row, id=name, group="G1") for name in names}
        group = Group(id="G1", members=tuple(names))
        runs = []
        for _ in range(3):  # the best of three has no collection of garbage in it
            start = time.process_time()
            assert (
                list(disagreements({}, {"G1": group}, {"G1"}, {k: (None, v) for k, v in rows.items()}, rows.get)) == []
            )
            runs.append(time.process_time() - start)
        took.append(min(runs))

    assert took[1] < 3 * took[0] + 0.05


def test_groups_that_cannot_be_read_are_found(full: Store) -> None:
    rewrite(full, {"ledger/groups.jsonl": b"[]\n"})

    damaged(full, "not a list of groups", path="ledger/groups.jsonl")
