"""The pictures in the documents: the report's page of the demo's recording, played again within a budget.

`python -m tests.hosts.report.pictures` makes them anew; `environments.python("browser")` is the interpreter for it.
Beside them it writes what is on them, by which a test tells that they are stale: pixels depend on fonts.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from ctxvc.agent import run
from ctxvc.policies import parse
from ctxvc.recording.files import import_paths
from ctxvc.session.session import Session
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.project.locate import FOLDER
from ctxvc.store.store import create
from tests.hosts.environments import ROOT
from tests.hosts.report.conftest import DEMO, ctxvc, started
from tests.making.watcher import Silent

PICTURES_FOLDER = ROOT / "docs" / "pictures"
#: File → the link that it shows, the theme, and the height of the window.
PICTURES = {
    "session.png": ("#/overview", "light", 940),
    "lanes.png": ("#/lanes", "light", 800),
    "prompt.png": ("#/prompt/16", "light", 800),
    "life.png": ("#/lanes?block=B7", "dark", 520),
}
_OUTLINE = """
() => [...document.querySelectorAll("h1, h2, h3, nav a, .verdict dt, th, .legend-item span, .filters button, .readout")]
  .filter((element) => element.checkVisibility()).map((element) => element.textContent.replace(/\\d[\\d.,]*/g, "#"))
"""


def made(project: Path) -> Path:
    """The page of the demo's recording under a policy with half the tokens that it has; a person took a block back."""
    with create(project / FOLDER) as store:
        (outcome,) = import_paths(store, [DEMO], name="recorded", final=True)
        assert not outcome.error, outcome.error
        turns = run.recorded(Session(StoredSession.open(store, "recorded")))
    store_path = project / FOLDER
    with Session.open(store_path, "demo", model="claude-sonnet-4-5", budget=14_000, policy=parse("default")) as session:
        run.play(session, turns, Silent())
        departed = next(row.id for row in session.ledger().rows() if row.state in ("archived", "blocked"))
        session.recover(departed)
        session.note("the test needs a fixed clock")
        run.play(session, turns, Silent())
    ctxvc(project, "--session", "demo", "report", "-o", "page.html")
    return project / "page.html"


def outline(browser: Any, page: Path, picture: str, *, target: Path | None = None) -> str:
    """What is on a picture, line by line; the picture itself goes to `target`."""
    link, theme, height = PICTURES[picture]
    context = browser.new_context(viewport={"width": 1280, "height": height}, color_scheme=theme)
    tab = context.new_page()
    tab.goto(f"file://{page}{link}")
    tab.wait_for_timeout(300)
    lines = [f"{picture}: {link}", *tab.evaluate(_OUTLINE)]
    if target:
        tab.screenshot(path=target)
    context.close()
    return "\n".join(lines)


def main() -> None:
    PICTURES_FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, started(shutil.which("chromium")) as browser:
        page = made(Path(folder))
        outlines = [outline(browser, page, picture, target=PICTURES_FOLDER / picture) for picture in PICTURES]
    (PICTURES_FOLDER / "outline.txt").write_text("\n\n".join(outlines) + "\n")


if __name__ == "__main__":
    main()
