"""Makes the golden store of sent prompts of the current format, n: `python tests/stores/make_sent.py`.

It writes `sent-<n>.bundle` beside itself: a session under a budget whose commits have the hashes of the prompts that it
sent, with cuts, boards, thinking, groups, a mask, words that look like ours, and a scope. Every later version must
render these prompts byte for byte. It is made once; run this again only while the format is in no release.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from ctxvc.session.session import Session
from ctxvc.store.format import FORMAT

HERE = Path(__file__).parent


def call(number: int, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"c{number}", "name": "Read", "input": arguments or {"path": f"src/{number}.py"}}


def result(number: int, text: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": f"c{number}", "content": text, **more}


def thinking(text: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": "c2ln"}


def step(session: Session, number: int, text: str) -> None:
    """A call, its result, and the prompt behind it."""
    session.request()
    session.append(
        {"role": "assistant", "content": [thinking(f"look at {number}"), call(number)], "stop_reason": "tool_use"}
    )
    session.append({"role": "user", "content": [result(number, text)]})


def build(path: Path) -> None:
    """The golden store, made by today's code."""
    with Session.open(
        path, "sent", model="claude-opus-4-5", budget=16_000, system="You are golden.", tools=[], policy="default"
    ) as session:
        session.append(
            {"role": "user", "content": "Mend the paths. [archived B2@123456] and [B2 · 2.3k] are no words of ours."}
        )
        for number in range(1, 13):
            step(
                session,
                number,
                f"def path_{number}():\n    return [B{number} · 9.9k]\n" + f"line {number} of it\n" * 90,
            )
            if number == 5:
                session.archive("B3-B6", "the first two paths")
            if number == 7:
                session.mask("B12")
            if number == 9:
                session.restore("B6")
        session.request()
        session.append({"role": "assistant", "content": "Twelve are mended.", "stop_reason": "end_turn"})
        session.note("paths 1 to 12 are mended")
        session.append({"role": "user", "content": "Now the tests."})
        for number in range(20, 24):
            step(session, number, f"assert path_{number}\n" * 400)
        session.request()
        session.append({"role": "assistant", "content": "They pass.", "stop_reason": "end_turn"})
        session.open_scope("fix", "one is left")
        session.append({"role": "user", "content": "Go on."})
        step(session, 30, "[dashboard of nobody]\n" * 60)
        session.request()
        session.append({"role": "assistant", "content": "Done.", "stop_reason": "end_turn"})


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ".ctxvc"
        build(path)
        target = str(HERE / f"sent-{FORMAT}.bundle")
        command = ["git", f"--git-dir={path}", "bundle", "create", "--quiet", target, "--branches", "HEAD"]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
