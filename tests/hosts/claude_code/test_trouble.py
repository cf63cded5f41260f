"""Whatever becomes of ctxvc, the client goes on; the person is told once, and what is missing is recorded later."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from ctxvc.claude_code import event
from tests.hosts.claude_code import scripted
from tests.hosts.claude_code.machine import PLUGIN, Finished, Machine
from tests.making.waiting import until_there
from tests.messages_api import call, text
from tests.messages_api.script import Said

#: Ends once it is noted why the conversation is not recorded, which the next hook tells; after half a minute at most.
NOTED = (
    "for i in $(seq 300); do ls ~/.local/share/ctxvc/conversations/*/trouble && break; sleep 0.1; done > /dev/null 2>&1"
)


def prints(*arguments: str, until: str = "sleep 0.3") -> list[Said]:
    """A turn that prints each of these with a call of its own, which ends with `until`."""
    return [
        *([call("Bash", command=f"echo {word}; {until}", description="print")] for word in arguments),
        [text("Done.")],
    ]


def recorded(here: Machine) -> str:
    return here.shell("ctxvc", "grep", "needle-")


def complaints(finished: Finished) -> list[str]:
    return [line for line in finished.shown if "does not record" in line]


def doctor(here: Machine) -> str:
    return here.shell("sh", "-c", "ctxvc doctor --json || true")


def damage(store: Path) -> None:
    for pack in (store / "objects" / "pack").glob("*.pack"):
        pack.chmod(0o600)
        pack.write_bytes(b"\0" * pack.stat().st_size)


def test_a_damaged_store_is_told_once_and_what_is_missing_is_recorded_when_it_is_mended(here: Machine) -> None:
    here.run("One.", *prints("needle-1"))
    here.settle()
    here.end_recorder()
    copy = shutil.copytree(here.store, here.project.parent / "copy")
    damage(here.store)

    second = here.run("Two.", *prints("needle-2", "needle-3", until=NOTED))
    assert len(complaints(second)) == 1, second.shown
    assert " is not recorded: " in doctor(here)
    here.run("/compact")
    here.run("Three.", [text("Yes.")])
    given_back = scripted.text(here.requests()[-1])
    assert "needle-1" in given_back and "needle-2" not in given_back
    assert event.MISSING in given_back and event.UNFINISHED not in given_back

    here.end_recorder()
    shutil.rmtree(here.store / "objects")
    shutil.copytree(copy / "objects", here.store / "objects")
    last = here.run("Four.", [text("Fine.")])
    here.settle(well=False)
    assert len(complaints(last)) <= 1  # as it began, nothing had been tried yet
    assert all(f"needle-{number}" in recorded(here) for number in (1, 2, 3))
    assert " is not recorded: " not in doctor(here)


def test_a_full_disk_is_told_and_what_is_missing_is_recorded_once_there_is_room(here: Machine) -> None:
    here.store.mkdir()
    here.shell("mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", str(here.store))
    here.shell("ctxvc", "init")
    here.run("One.", *prints("needle-1"))
    here.settle()
    here.shell("sh", "-c", "cat /dev/zero > .ctxvc/filler 2>/dev/null || true")

    second = here.run("Two.", *prints("needle-2", "needle-3", until=NOTED))
    assert len(complaints(second)) == 1, second.shown
    here.shell("rm", ".ctxvc/filler")
    here.run("Three.", *prints("needle-4"))
    inside = Path(f"/proc/{here.space.pid}/root{here.store}")
    until = time.monotonic() + 30
    while "needle-4" not in recorded(here) and time.monotonic() < until:
        time.sleep(0.2)
    assert all(f"needle-{number}" in recorded(here) for number in (1, 2, 3, 4)), list((inside / "ctxvc").rglob("*"))
    here.shell("ctxvc", "verify")


def test_a_recorder_that_is_killed_again_and_again_loses_nothing(every: Machine) -> None:
    running = every.start("Go.", *prints(*(f"needle-{number}" for number in range(8))))
    while running.process.poll() is None:
        every.end_recorder()
        time.sleep(0.2)
    every.check(running.finish())
    every.run("And now?", [text("All is well.")])
    every.settle(well=False)

    found = recorded(every)
    assert all(f"needle-{number}" in found for number in range(8))
    assert found.count("\n") <= 3 * 8  # nothing twice: the call, its result, and what either says
    every.shell("ctxvc", "verify")


def test_a_client_that_is_killed_in_a_call_is_recorded_and_resumed(every: Machine) -> None:
    running = every.start("Go.", [call("Bash", command="touch begun; sleep 60", description="wait")])
    until_there(every.project / "begun")
    running.kill()
    running.process.wait(30)

    every.run("Go on.", [text("I go on.")])
    every.settle()
    assert "I go on." in every.shell("ctxvc", "log")
    if "touch begun" in every.transcript().read_text():  # the older client had not written it yet
        assert "touch begun" in every.shell("ctxvc", "log")


def test_where_the_scripts_or_the_program_vanish_the_client_goes_on(every: Machine) -> None:
    (plugin,) = every.plugins
    waits = [[call("Bash", command="touch begun; sleep 2", description="wait")]]
    running = every.start("Go.", *waits, *prints("a", "b"))
    until_there(every.project / "begun")
    shutil.rmtree(plugin / "scripts")
    every.check(running.finish())

    shutil.copytree(PLUGIN / "scripts", plugin / "scripts")
    (every.project.parent / "bin" / "ctxvc").unlink()
    finished = every.run("Again.", *prints("c"))
    assert [line for line in finished.shown if "not on the search path" in line]
