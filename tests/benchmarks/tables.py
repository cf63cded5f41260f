"""What sessions spent, over many: `stats`, the table as it is exported, and the questions of the how-to.

The sessions are those of the recordings, again and again under other names, each with commits of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from ctxvc.store.git import program
from ctxvc.store.store import Store, create
from ctxvc.tables.parquet import connect
from ctxvc.tables.rows import PARTS
from ctxvc.tables.sql import Table
from tests.benchmarks.measuring import Figure, process_seconds, processor_seconds, seconds

SESSIONS = int(os.environ.get("CTXVC_BENCH_SESSIONS", "10000"))
WRITERS, SHARED = 100, int(os.environ.get("CTXVC_BENCH_SHARED", "100000"))
HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "ask-across-sessions.md"


def questions() -> list[tuple[str, str]]:
    """The questions of the how-to: the paragraph before each, and its SQL."""
    page = HOW_TO.read_text().partition("## Ten questions")[2]
    return re.findall(r"\n\n(\S[^\n?]*\?)[^\n]*\n.*?```sql\n(.*?)```", page, re.DOTALL)


def figures(folder: Path) -> Iterator[Figure]:
    with create(folder / "project" / ".ctxvc") as store:
        data = os.environ.get("CTXVC_TEST_DATA", "")
        recordings = sorted(Path(data, "trajectories").glob("*.jsonl.gz")) if data else []
        ctxvc = (sys.executable, "-m", "ctxvc", "-C", str(folder / "project"))
        process_seconds(*ctxvc, "import", *map(str, recordings))
        multiply(store)
    table = folder / "table"
    works = {
        "stats": (*ctxvc, "stats"),
        "export": (*ctxvc, "export", "--format", "parquet", "-o", str(table)),
    }
    targets = {"stats, first": "<= 60", "stats, again": "<= 1", "export, nothing new": "<= 1"}
    for name, command in works.items():
        for when in ("first", "nothing new" if name == "export" else "again"):
            what, processor = f"{name}, {when}", []
            wall = seconds(lambda: processor.append(processor_seconds(*command)))  # noqa: B023
            yield Figure(f"{what}, {SESSIONS:,} sessions", wall, "s", target=targets.get(what, ""))
            yield Figure(f"{what}, processor", processor[0], "s")
    yield Figure("the table", sum(file.stat().st_size for file in table.rglob("*.parquet")) / 1e6, "MB")
    yield from _asked(table, folder / "shared")


def multiply(store: Store) -> None:
    """Adds copies of all sessions under new names, up to `SESSIONS`: other commits, of the same trees."""
    tips = {name: scopes["main"] for name, scopes in store.all_tips().items()}
    chains = {
        name: [store.commit(commit) for commit in reversed([*store.first_parents(tip)])] for name, tip in tips.items()
    }
    arguments = ["git", "--git-dir", str(store.path), "fast-import", "--quiet", "--force"]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE) as process:
        assert process.stdin
        for number in range(len(tips), SESSIONS):
            copy, at = divmod(number, len(tips))
            name = [*chains][at]
            for commit in chains[name]:
                text = commit.message.encode()
                author = f"{commit.author.name} <{commit.author.email}> {commit.author.time} +0000"
                process.stdin.write(
                    f"commit refs/heads/{name}-{copy}/main\nauthor {author}\n"
                    f"committer ctxvc <ctxvc@ctxvc> {commit.commit_time + copy} +0000\ndata {len(text)}\n".encode()
                    + text
                    + f'\nM 040000 {commit.tree_id} ""\n\n'.encode()
                )
        process.stdin.close()
    program.run(store.path, "pack-refs", "--all")


def _asked(table: Path, shared: Path) -> Iterator[Figure]:
    """The questions, over the table of a hundred writers: the sessions of one, again and again."""
    with Table({str(table): "*"}) as made, connect() as connection:
        ((base,),) = made.ask(f"SELECT least(count(*), {SHARED // WRITERS}) FROM sessions").rows
        shared.mkdir()
        for writer in range(WRITERS):
            for part in PARTS:
                commit = ", md5(commit || n) AS commit" if "commit" in PARTS[part].__struct_fields__ else ""
                connection.execute(
                    f"COPY (SELECT * EXCLUDE n REPLACE ('w{writer}' AS writer, session || '-' || n AS session{commit}) "
                    f"FROM read_parquet('{table}/{part}/*/*/*.parquet', hive_types_autocast=false) "
                    f"SEMI JOIN (FROM read_parquet('{table}/sessions/*/*/*.parquet') ORDER BY session LIMIT {base}) "
                    f"USING (session) CROSS JOIN range({SHARED // WRITERS // base}) AS copies(n)) TO '{shared / part}' "
                    "(FORMAT parquet, COMPRESSION zstd, PARTITION_BY (month, writer), APPEND)"
                )
    with Table({str(shared): "*"}) as asked:
        ((count,),) = asked.ask("SELECT count(*) FROM sessions").rows
        size = sum(file.stat().st_size for file in shared.rglob("*.parquet"))
        yield Figure(f"the table of {WRITERS} writers, {count:,} sessions", size / 1e6, "MB")
        for question, statement in questions():
            before = time.process_time()
            wall = seconds(lambda: asked.ask(statement))  # noqa: B023
            yield Figure(question[:56], wall, "s", target="<= 5")
            yield Figure("  processor", time.process_time() - before, "s")
