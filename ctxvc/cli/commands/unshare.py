"""`unshare`: takes a session back from a remote."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import click
import msgspec

from ctxvc.cli.answers.shared import Answer, SessionName, described
from ctxvc.cli.app import App, command, complete_sessions, json_option, not_empty
from ctxvc.cli.output import safe
from ctxvc.cli.terminal.progress import Progress
from ctxvc.sharing import indexes, remotes
from ctxvc.sharing import push as sharing


@command("unshare", "ctxvc unshare codex-7")
@click.argument("name", metavar="SESSION", shell_complete=complete_sessions, callback=not_empty)
@click.argument("remote", metavar="[REMOTE]", default="")
@click.option("--undo", is_flag=True, help="Share it again, from the next push on.")
@json_option
@click.pass_obj
def unshare(app: App, name: str, remote: str, undo: bool) -> None:
    """
    Pushes this store's list of sessions without it. Whoever pulled the session keeps it, and the host keeps its objects
    until it collects garbage. To erase contents, use `ctxvc purge` and `ctxvc push --after-purge`.
    """
    with app.store() as store, Progress("pushing"):
        name = app.resolved(store, name)
        chosen = remotes.find(store, remote)
        withheld = frozenset(chosen.withheld) - {name} if undo else frozenset((*chosen.withheld, name))
        remotes.update(store, msgspec.structs.replace(chosen, withheld=tuple(sorted(withheld))))
        elsewhere: list[str] = []
        if not undo:
            sharing.push(store, chosen.name, ask=app.may_ask)
            clones = indexes.cached(chosen.address).clones
            own = remotes.clone_name(store)
            elsewhere = sorted(clone for clone, index in clones.items() if clone != own and name in index.sessions)
    answer = Unshared(session=name, remote=chosen.name, withheld=not undo, elsewhere=elsewhere)
    app.output.answer(answer, _lines(answer))


def _lines(answer: Unshared) -> Iterator[str]:
    if not answer.withheld:
        yield safe(f"{answer.session} goes to {answer.remote} again with the next `ctxvc push`")
        return
    yield safe(f"this store no longer lists {answer.session} on {answer.remote}")
    if answer.elsewhere:
        yield safe(f"others have it and list it there: {', '.join(answer.elsewhere[:12])}")


class Unshared(Answer, frozen=True, kw_only=True, tag="ctxvc.unshare/1"):
    """`unshare`"""

    session: SessionName
    remote: str
    withheld: Annotated[bool, described("whether it is kept from the remote now")]
    elsewhere: Annotated[list[str], described("clones that pulled it and have it in their own index there")]
