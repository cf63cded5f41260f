"""Our extension and our importer against the declarations of pi's newest release.

That release cannot be run here: some of its own dependencies are not to be had.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ctxvc import importers
from ctxvc.core.recording.events import Warned
from ctxvc.importers.file import Recording
from tests.hosts import npm

_HOOKS = Path(__file__).parents[3] / "hooks"
#: What the declarations of pi do not say: Node.
_NODE = """
declare const process: { env: Record<string, string | undefined> }
declare module "node:fs" { export const readFileSync: (...all: string[]) => string }
declare module "node:os" { export const homedir: () => string }
declare module "node:path" { export const join: (...all: string[]) => string }
"""
#: The types of entries as the text of a complaint.
_ENTRIES = """
/** @param {import("@earendil-works/pi-coding-agent").SessionEntry} entry
 *  @returns {never} */
export const entries = (entry) => entry.type
"""
_OPTIONS = {
    "noEmit": True, "allowJs": True, "checkJs": True, "skipLibCheck": True, "noErrorTruncation": True, "types": [],
    "module": "nodenext", "moduleResolution": "nodenext", "target": "es2023",
}  # fmt: skip
#: What the extension uses → a name that pi has not.
_WRONG = {
    "registerProvider": "registerProviders",
    "{ baseUrl }": "{ baseURL: baseUrl }",
}


@pytest.fixture(scope="module")
def complaints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """file → what TypeScript says against it, of the extension, copies with one name wrong, and `entries.js`."""
    project = tmp_path_factory.mktemp("pi")
    (project / "node_modules").symlink_to(npm.installed("pi-types"))
    source = (_HOOKS / "pi" / "index.js").read_text()
    files = {"index.js": source, "entries.js": _ENTRIES}
    files |= {f"wrong-{at}.js": source.replace(ours, wrong) for at, (ours, wrong) in enumerate(_WRONG.items())}
    for name, text in files.items():
        (project / name).write_text(text)
    (project / "node.d.ts").write_text(_NODE)
    (project / "package.json").write_text('{"type":"module"}')
    (project / "tsconfig.json").write_text(json.dumps({"compilerOptions": _OPTIONS, "files": [*files, "node.d.ts"]}))
    compiler = project / "node_modules" / "typescript" / "lib" / "tsc.js"
    node = shutil.which("node") or "node"
    result = subprocess.run([node, compiler, "-p", "."], cwd=project, capture_output=True, text=True, check=False)
    texts = re.split(r"^(?=\S+\(\d+,\d+\): error TS)", result.stdout, flags=re.MULTILINE)
    assert not texts[0], result.stdout + result.stderr
    return {name: "".join(text for text in texts if text.startswith(f"{name}(")) for name in files}


def test_the_extension_uses_what_the_newest_pi_declares(complaints: dict[str, str]) -> None:
    assert complaints["index.js"] == ""


def test_a_name_that_pi_does_not_declare_is_seen(complaints: dict[str, str]) -> None:
    unseen = [wrong for at, wrong in enumerate(_WRONG.values()) if not complaints[f"wrong-{at}.js"]]

    assert unseen == []


def test_the_importer_knows_every_type_of_entry_of_the_newest_pi(complaints: dict[str, str], tmp_path: Path) -> None:
    types = re.findall(r'"(\w+)"', complaints["entries.js"].splitlines()[0])
    header = {"type": "session", "id": "s", "timestamp": "2026-01-01T00:00:00Z", "cwd": "/project"}
    path = tmp_path / "s.jsonl"
    lines = [header, *({"type": kind, "id": kind, "parentId": None} for kind in [*types, "of_tomorrow"])]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    events = [event for _, stream in importers.conversations(Recording(path), "pi") for event in stream]

    assert "context_edit" in types
    unknown = [event.text for event in events if isinstance(event, Warned) and "unknown type" in event.text]
    assert unknown == ["entries of an unknown type are skipped: 'of_tomorrow'"]
