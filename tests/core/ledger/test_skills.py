"""Loaded skills: they bind while they are used, and fold once they are not; their stub says where they are."""

from __future__ import annotations

from ctxvc.core.display import decode
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Ledger
from ctxvc.core.ledger.objects import objects
from ctxvc.core.ledger.skills import UNUSED, path_in, skills, unused
from ctxvc.core.plan import Action, Plan, View, rehearse
from ctxvc.core.plan.protected import protected
from tests.core.ledger.test_objects import exchange, human
from tests.making.generated import Letters, numbered

PATH = "skills/pdf/SKILL.md"
BODY = "---\nname: pdf\n---\n" + "Do it with care. " * 200


def loaded(steps: int, *, again: int = 0, named: str = "ls") -> list[Message]:
    """A skill that is read, then so many steps; the last of them has `named` in its command, one reads it `again`."""
    messages = [human("Make a PDF"), *exchange("Read", "skill", f'{{"path":"{PATH}"}}', BODY)]
    for step in range(1, steps + 1):
        if step == again:
            messages += exchange("Read", f"c{step}", f'{{"path":"{PATH}"}}', BODY)
        else:
            command = named if step == steps else f"seq {step}"
            messages += exchange("sh", f"c{step}", f'{{"command":"{command}"}}', f"{step} " * 300)
    return messages


def ledger_of(messages: list[Message]) -> Ledger:
    return numbered(messages)[0]


def test_a_skill_is_an_object_of_its_name_and_block_also_where_claude_code_puts_it_in() -> None:
    ledger = ledger_of(loaded(3))
    assert "skill:pdf:3" in objects(ledger)
    assert "function:Read:3" not in objects(ledger)
    assert [(skill.name, skill.path) for skill in skills(ledger)] == [("pdf", PATH)]

    base = wire.text_part("Base directory for this skill: /home/me/skills/pdf\n\n" + BODY, "user", "client")
    ledger = ledger_of(
        [
            human("Make a PDF"),
            *exchange("Skill", "c1", '{"skill":"pdf"}', "Launching skill: pdf"),
            Message(role="user", parts=(base,)),
            *exchange("sh", "c2", '{"command":"ls"}', "x"),
        ]
    )
    assert [(skill.name, skill.path, skill.row.kind) for skill in skills(ledger)] == [
        ("pdf", "/home/me/skills/pdf", "user")
    ]
    assert "skill:pdf:4" in objects(ledger)
    assert "B4" in protected(ledger)


def test_a_skill_in_use_is_protected_and_one_that_is_unused_is_not() -> None:
    """A `SKILL.md` used to stay for ever."""
    for messages, stays in (
        (loaded(UNUSED), True),
        (loaded(UNUSED + 1), False),
        (loaded(UNUSED + 5, named="python skills/pdf/fill.py"), True),
        (loaded(UNUSED + 5, named="python skills/pdfs/fill.py"), False),
    ):
        ledger = ledger_of(messages)
        assert ("B3" in protected(ledger)) == stays, messages[-2]
        assert (ledger["B3"].id in unused(ledger)) != stays


def test_of_a_skill_that_was_loaded_again_the_older_one_is_unused() -> None:
    ledger = ledger_of(loaded(5, again=2))
    assert [skill.row.id in unused(ledger) for skill in skills(ledger)] == [True, False]


def test_what_writes_a_skill_or_fails_to_read_it_loads_none() -> None:
    written = exchange("Write", "c1", f'{{"path":"{PATH}","content":"{"x" * 300}"}}', "written")
    failed = wire.result_part("no such file " * 20, "c2", error=True)
    read = Message(role="assistant", parts=(wire.call_part("Read", "c2", f'{{"path":"{PATH}"}}'.encode()),))
    assert not skills(ledger_of([human("Go"), *written, read, Message(role="user", parts=(failed,))]))


def test_the_instructions_of_a_project_stay_for_ever() -> None:
    steps = [message for step in range(40) for message in exchange("sh", f"s{step}", '{"command":"ls"}', "x")]
    ledger = ledger_of([human("Go"), *exchange("Read", "c", '{"path":"AGENTS.md"}', "Use tabs. " * 40), *steps])
    assert "B3" in protected(ledger)


def test_the_stub_of_a_skill_has_its_name_and_its_path_alone_and_in_a_group() -> None:
    """The path is the whole one, also where the call's label shows only its beginning."""
    path = f"/home/somebody/{'far/' * 15}{PATH}"
    read = exchange("Read", "skill", f'{{"file_path":"{path}"}}', BODY)
    for words, shown in ((loaded(UNUSED + 5), PATH), ([human("Go"), *read, *loaded(UNUSED + 5)[3:]], path)):
        ledger, held = numbered(words)
        view = View(ledger=ledger, price=Letters(), words=lambda row, held=held: decode(held[row.id, ""]))
        for targets in (("B3",), ("B2", "B3", "B4", "B5")):
            rehearsal = rehearse.rehearse(view, Plan(actions=(Action(verb="archive", targets=targets),), actor="user"))
            (stub,) = [one.stub for one in (*rehearsal.rows, *rehearsal.groups) if one.stub]
            assert f"skill pdf, {shown}" in stub


def test_a_path_in_a_text_of_one_long_word_is_found_without_a_look_from_each_of_its_letters() -> None:
    letters = "letters" * 100_000
    assert path_in(f"{letters} cat {PATH}.bak ./{PATH}; ls") == f"./{PATH}"
    assert path_in(f"/{letters}/{PATH}").endswith(f"letters/{PATH}")
    assert path_in(letters) == path_in(f"{letters}/{PATH}x") == ""
