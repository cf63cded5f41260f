"""Links from code commits to steps: made once, whoever makes them, and still there in a clone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from ctxvc.core.recording.events import Opened, Said
from ctxvc.store.git import program as git
from ctxvc.store.ingest import ingest
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.project import links, links_inbox
from ctxvc.store.project.links_inbox import CodeCommit
from ctxvc.store.purge import purge
from ctxvc.store.store import Store
from ctxvc.store.verify import verify
from tests.making.project import human, reply, time

NAMES = [f"{number:040x}" for number in range(1, 40)]


@pytest.fixture
def project(store: Store) -> Path:
    """The folder of the store, as a repository of its own."""
    folder = store.path.parent
    in_git(folder, "init", "-q", ".")
    return folder


def in_git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "core.hooksPath=/dev/null")
    result = subprocess.run(["git", *who, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return result.stdout.strip()


def commit(folder: Path, **files: str) -> str:
    for name, words in files.items():
        (folder / name).write_text(words)
    in_git(folder, "add", *files)
    in_git(folder, "commit", "-q", "-m", "a change")
    return in_git(folder, "rev-parse", "HEAD")


def begin(store: Store, name: str = "work") -> None:
    store.create_session(name)
    with StoredSession.open(store, name) as session:
        session.append(human("go", 1), reply(2, {"type": "text", "text": "gone"}))
        session.finish()


def told(store: Store, commit: str, *, after: int = 0, **more: str) -> CodeCommit:
    """A commit that was made so many seconds after the newest step (which building.py dates into March 2026)."""
    when = f"2026-03-01T{12 + after // 3600:02}:{after // 60 % 60:02}:30Z" if after < 43_000 else "2026-03-09T12:00:00Z"
    return CodeCommit(commit, str(store.path.parent), when, head=links_inbox.head(store.path), **more)


def test_a_commit_is_linked_to_the_session_that_was_current_and_its_newest_step(store: Store, project: Path) -> None:
    begin(store)
    name = commit(project, a="1", b="2")
    links_inbox.post(store.path, told(store, name))

    assert links.take(store) == 1

    (link,) = links.find(store, name)
    assert (link.session, link.scope, link.step, link.files) == ("work", "main", 1, ("a", "b"))
    assert (link.recording, link.host, link.more) == ("", "", 0)
    assert links.find(store, name[:7]) == [link] == links.every(store)
    assert in_git(project, "log", "--format=%s %b %N") == "a change"  # nothing of ours is in the project's history
    assert links_inbox.pending(store.path) == []


def test_a_host_that_names_its_session_is_believed_even_before_the_store_has_it(store: Store, project: Path) -> None:
    begin(store)
    name = commit(project, a="1")
    links_inbox.post(store.path, told(store, name, host="claude-code", recording="recording-9"))
    links.take(store)

    (link,) = links.find(store, name)

    assert (link.host, link.recording, link.session, link.step) == ("claude-code", "recording-9", "", 0)
    opened = Opened(format="claude-code", source="recording-9", time=time(1))
    said = [Said(message=human("hi", 1), end=1), Said(message=reply(2, {"type": "text", "text": "yes"}), end=2)]
    ingest(store, [opened, *said], name="late", final=True)
    other = commit(project, a="2")
    links_inbox.post(store.path, told(store, other, host="claude-code", recording="recording-9"))
    links.take(store)
    assert [(link.session, link.step) for link in links.find(store, other)] == [("late", 1)]


def test_a_link_stays_what_it_was_first_and_what_a_person_commits_a_week_later_gets_none(
    store: Store, project: Path
) -> None:
    begin(store)
    name = commit(project, a="1")
    links_inbox.post(store.path, told(store, name))
    links.take(store)
    before = links.every(store)
    links_inbox.post(store.path, told(store, name, after=60))
    links_inbox.post(store.path, told(store, commit(project, a="2"), after=600_000))

    assert links.take(store) == 0
    assert links.every(store) == before and links_inbox.pending(store.path) == []


def test_processes_that_link_at_once_lose_nothing_and_do_nothing_twice(store: Store) -> None:
    begin(store)
    for name in NAMES:
        links_inbox.post(store.path, told(store, name))
    program = (
        "import sys; from pathlib import Path; from ctxvc.store.project import links\n"
        "from ctxvc.store.store import Store\n"
        "with Store(Path(sys.argv[1])) as store: print(links.take(store))"
    )
    command = [sys.executable, "-c", program, str(store.path)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]

    assert sum(int(process.communicate()[0]) for process in running) == len(NAMES)
    assert sorted(link.commit for link in links.every(store)) == NAMES


def test_a_plain_clone_has_the_links_and_git_and_verify_have_nothing_against_them(store: Store, tmp_path: Path) -> None:
    begin(store)
    links_inbox.post(store.path, told(store, NAMES[0]))
    links.take(store)

    subprocess.run(["git", "clone", "--quiet", "--bare", store.path, tmp_path / "clone"], check=True)

    assert NAMES[0][2:] in git.run(tmp_path / "clone", "ls-tree", "-r", "--name-only", links.REF).decode()
    assert not verify.verify(store).findings
    git.run(store.path, "fsck", "--full", "--strict")
    assert store.sessions() == ["demo", "work"]


def test_a_purge_erases_a_text_from_links_too(store: Store, project: Path) -> None:
    begin(store)
    name = commit(project, **{"hunter2hunter2.txt": "1"})
    links_inbox.post(store.path, told(store, name))
    links.take(store)

    purge.purge(store, purge.PurgeRequest(texts=("hunter2hunter2",)))

    (link,) = links.every(store)
    assert link.commit == name and "hunter2" not in str(link) and "REDACTED" in link.files[0]
    other = commit(project, b="2")
    links_inbox.post(store.path, told(store, other))
    assert links.take(store) == 1


@pytest.mark.parametrize("odd", [b"", b"[]", b"{}", b'["a","b",1,"","",""]', b'["../x","/","t","","",""]', b"\xff"])
def test_a_file_that_is_no_commit_is_passed_over_and_stays(store: Store, odd: bytes) -> None:
    begin(store)
    links_inbox.post(store.path, told(store, NAMES[0]))
    ((path, _),) = links_inbox.pending(store.path)
    path.with_name("00-odd").write_bytes(odd)

    assert links.take(store) == 1
    assert links_inbox.pending(store.path) == [(path.with_name("00-odd"), None)]


def test_a_file_on_the_branch_that_is_no_link_is_passed_over(store: Store) -> None:
    begin(store)
    for name in NAMES[:4]:
        links_inbox.post(store.path, told(store, name))
    links.take(store)
    (good, other, *_) = links.every(store)
    bad = {
        NAMES[1]: b"nonsense",
        NAMES[2]: msgspec.json.encode(msgspec.structs.replace(other, commit=NAMES[0])),
        NAMES[3]: msgspec.json.encode(msgspec.structs.replace(other, commit=NAMES[3], format=99)),
    }
    stream = b"".join(
        b"M 644 inline links/%s/%s.json\ndata %d\n%s\n" % (name[:2].encode(), name[2:].encode(), len(data), data)
        for name, data in bad.items()
    )
    head = f"commit {links.REF}\ncommitter a <a@b> 1 +0000\ndata 1\nx\nfrom {links.REF}^0\n".encode()
    git.run(store.path, "fast-import", "--quiet", data=head + stream + b"done\n")

    assert links.every(store) == [good]
    assert links.find(store, NAMES[2]) == []
