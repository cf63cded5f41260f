"""The tool `search`: exact in a session or project, ranked by an index also in all projects of a person."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ctxvc.agent.tools.search import COUNTED, SHOWN, WIDTH, address_from
from ctxvc.agent.tools.search import search as exact
from ctxvc.core.display import one_line
from ctxvc.core.relevance import terms
from ctxvc.errors import BadInput, CtxvcError, NotFound
from ctxvc.inspection import filters as filtering
from ctxvc.inspection.filters import Filters
from ctxvc.inspection.search import Searched, best, searched
from ctxvc.mcp import offer
from ctxvc.session.session import Session
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import address as addresses
from ctxvc.store.read.address import Resolved
from ctxvc.store.store import Store
from ctxvc.store.trust import known_stores


def search(session: Session, call: offer.SearchArguments) -> offer.Searched:
    """The blocks that match, or with `rank` fit best. Raises: BadInput, Conflict, CtxvcError."""
    if (call.all_projects and not call.rank) or (call.project and not call.all_projects):
        raise BadInput("all_projects is for rank, and project for all_projects",
                       hint="set rank, and give words as the pattern")  # fmt: skip
    filters = filtering.parsed(
        time.time(),
        kinds=[call.kind] if call.kind else [],
        agents=[call.agent] if call.agent else [],
        files=[call.file] if call.file else [],
        sessions=[] if call.all_sessions or call.all_projects else [session.name],
        since=call.since,
        until=call.until,
    )
    return _ranked(session, call, filters) if call.rank else _matching(session, call, filters)


def _matching(session: Session, call: offer.SearchArguments, filters: Filters) -> offer.Searched:
    store = session.store
    names = [name for name in store.sessions() if name != session.name] if call.all_sessions else []
    others = [StoredSession.for_reading(store, name) for name in names]
    result = exact(session.stored, call.pattern, ignore_case=call.ignore_case, others=others, filters=filters)
    matches = [
        offer.Found(
            address=match.address,
            kind=match.kind,
            step=match.step,
            in_recorded_prompt=match.state in ("visible", "pinned", "masked"),
            lines=[offer.Line(number=number, text=text) for number, text in match.lines],
            further_lines=match.more,
        )
        for match in result.matches
    ]
    further = min(result.more, COUNTED)
    return offer.Searched(session=session.name, found=matches, further_blocks=further, unfinished=result.unfinished)


def _ranked(session: Session, call: offer.SearchArguments, filters: Filters) -> offer.Searched:
    query, now = terms(call.pattern), time.time()
    unreadable: list[CtxvcError] = []

    def of(store: Store, project: str = "") -> Searched:
        return searched(
            store, query, filters, now, SHOWN, accepts=lambda place: place.row.state != "deleted", project=project,
            unreadable=unreadable,
        )  # fmt: skip

    own = session.store.path
    results = [of(session.store)] if _is_in(own, call.project) else []
    for path in known_stores.paths_with(own)[1:] if call.all_projects else ():
        if _is_in(path, call.project):
            try:
                with Store(path) as store:
                    results.append(of(store, str(path.parent)))
            except CtxvcError as error:
                unreadable.append(error)
    matches = [
        offer.Found(
            address=address_from(session.stored, fitting.place),
            kind=fitting.place.row.kind,
            step=fitting.place.row.step,
            in_recorded_prompt=fitting.place.row.present,
            lines=[offer.Line(number=fitting.line, text=one_line(fitting.text, WIDTH))],
            further_lines=0,
            project=fitting.place.project,
        )
        for fitting in best(results, now, SHOWN)
    ]
    unfinished = f"{len(unreadable)} sessions or projects could not be read" if unreadable else ""
    return offer.Searched(session=session.name, found=matches, further_blocks=0, unfinished=unfinished)


def _is_in(path: Path, project: str) -> bool:
    """Whether the store's project has this folder or folder name, or `project` is empty."""
    return project in ("", path.parent.name, str(path.parent))


@contextmanager
def other_project(store: Store, folder: str) -> Iterator[Store]:
    """Opens the store of the person's project in `folder`. Raises: NotFound if there is none."""
    paths = {str(path.parent): path for path in known_stores.paths_with(store.path)}
    if folder not in paths:
        raise NotFound(f"no project {one_line(folder, 100)!r}", hint="write it as search gives it")
    with Store(paths[folder]) as elsewhere:
        yield elsewhere


def in_store(store: Store, text: str) -> Resolved:
    """The block at an address in another project's store. Raises: BadInput, NotFound, Damaged."""
    address = addresses.parse(text)
    if address is None or not address.session:
        raise BadInput(f"{one_line(text, 80)!r} names no session there", hint="write it as search gives it")
    return addresses.find(StoredSession.for_reading(store, address.session), address)
