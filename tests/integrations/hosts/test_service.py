"""What `ctxvc serve` answers an extension: the host's own messages inside the budget, after restarts and forks too."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from tests.integrations.hosts.scripted import HOSTS, TASK, Client, Messages, output, run

_STUB = re.compile(r"\[archived (B[0-9]+@[0-9a-f]{6})")


@pytest.fixture(params=sorted(HOSTS))
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Client:
    return Client(request.param, tmp_path)


def begun(client: Client) -> Messages:
    return HOSTS[client.host].human(TASK, 1)


def stubs(prompt: Messages) -> set[str]:
    return set(_STUB.findall(json.dumps(prompt)))


def scopes(client: Client) -> dict[str, list[str]]:
    with Store(client.folder / ".ctxvc") as store:
        return {name: StoredSession.open(store, name).scopes() for name in store.sessions()}


def test_a_long_conversation_stays_inside_the_budget_and_its_prefix_stays_between_plans(client: Client) -> None:
    prompts: list[Messages] = []
    messages = begun(client)
    run(client, messages, range(60), seen=prompts.append)
    plans = sum(after[: len(before)] != before for before, after in pairwise(prompts))
    assert 2 <= plans <= 12
    assert all(TASK in json.dumps(prompt, ensure_ascii=False) for prompt in prompts)
    assert stubs(prompts[-1])


def test_what_nothing_happened_to_is_the_hosts_own_message(client: Client) -> None:
    messages = [*begun(client), *HOSTS[client.host].step(1, 100)]
    messages[1]["of the host's own"] = {"signature": [1, 2]}
    assert client.messages(messages)["messages"] == list(range(len(messages)))


def test_what_left_is_read_by_its_handle(client: Client) -> None:
    handle = sorted(stubs(run(client, begun(client), range(40))))[0]
    answer = client.ask(
        "tool", session="session-0001", tool="context_recover", arguments={"block": handle}, call="call-x"
    )
    assert not answer["is_error"]
    assert "return x *" in answer["text"]


def test_another_process_goes_on_with_the_same_prompt(client: Client) -> None:
    messages = begun(client)
    before = run(client, messages, range(40))
    assert client.restarted().prompt(messages) == before


def test_a_fork_goes_on_with_the_same_prompt_in_a_scope_of_its_own(client: Client) -> None:
    messages = begun(client)
    before = run(client, messages, range(40))
    copies = HOSTS[client.host].forked(messages)
    forked = client.restarted().prompt(copies, "session-0002")
    assert stubs(forked) == stubs(before)
    run(client, messages, range(40, 43))  # the original goes on as well
    assert list(scopes(client).values()) == [["main", "fork-1"]]


def test_a_fork_from_an_earlier_message_has_what_came_before_it(client: Client) -> None:
    messages = begun(client)
    run(client, messages, range(30))
    count = len(messages) - len(HOSTS[client.host].step(0, 0)) * 5
    copies = HOSTS[client.host].forked(messages[:count])
    copies += HOSTS[client.host].human("Another way.", 99_000)
    forked = client.restarted().prompt(copies, "session-0002")
    assert "Step 24." in json.dumps(forked)
    assert "Step 25." not in json.dumps(forked)


def test_who_goes_back_finds_what_was_there_and_goes_on_in_another_scope(client: Client) -> None:
    messages = begun(client)
    run(client, messages, range(10))
    length = len(HOSTS[client.host].step(0, 0))
    back = [*messages[: -3 * length], *HOSTS[client.host].human("Not so.", 99_000)]
    prompt = client.prompt(back)
    assert "Step 6." in json.dumps(prompt)
    assert "Step 7." not in json.dumps(prompt)
    assert list(scopes(client).values()) == [["main", "rewind-1"]]
    assert run(client, back, range(20, 24))


def test_what_the_host_left_out_itself_is_out_of_the_prompt_and_in_the_store(client: Client) -> None:
    messages = begun(client)
    run(client, messages, range(10))
    length = len(HOSTS[client.host].step(0, 0))
    summary = HOSTS[client.host].human("A summary of the host's.", 98_000)
    prompt = client.prompt([*summary, *messages[-2 * length :], *HOSTS[client.host].human("Go on.", 99_000)])
    assert "Step 3." not in json.dumps(prompt)
    assert "Step 9." in json.dumps(prompt)
    found = client.ask("tool", session="session-0001", tool="context_search", arguments={"pattern": "Step 3"}, call="x")
    assert "Step 3." in found["text"]


@pytest.mark.parametrize("restarts", [False, True])
def test_after_a_compaction_of_the_hosts_own_human_words_stay_and_the_rest_is_recorded_as_left_out(
    client: Client, restarts: bool
) -> None:
    host = HOSTS[client.host]
    messages = [*begun(client), *host.step(1, 100), *host.human("Tabs, not spaces.", 200), *host.step(2, 300)]
    client.prompt(messages)
    tail = host.step(3, 400)
    client.prompt([*messages, *tail])
    client = client.restarted() if restarts else client
    after = [*host.compacted("A summary.", 500), *tail, *host.human("Go on.", 600)]
    prompt = client.prompt(after)
    text = json.dumps(prompt, ensure_ascii=False)
    assert text.index(TASK) < text.index("Tabs, not spaces.") < text.index("A summary.") < text.index("Step 3.")
    assert "Step 1." not in text
    assert "Step 2." not in text
    assert client.restarted().prompt(after) == prompt
    assert client.prompt([*after, *host.step(4, 700)])[: len(prompt)] == prompt, "the cached prefix stays whole"
    ((name, _),) = scopes(client).items()
    with Store(client.folder / ".ctxvc") as store:
        rows = list(StoredSession.open(store, name).ledger().rows())
    left = {row.removed_by for row in rows if row.state == "archived"}
    assert left == {"host"}
    assert sum(row.state == "archived" for row in rows) == 6, "of two steps: text, call, result"


def test_human_words_that_a_compaction_dropped_take_a_quarter_of_the_budget_at_most(client: Client) -> None:
    host = HOSTS[client.host]
    messages = begun(client)
    for number in range(1, 13):
        messages += [
            *host.human(f"Said {number}. {output(number)}", 1_000 * number),
            *host.step(number, 1_000 * number + 1, "ok"),
        ]
        client.prompt(messages)
    text = json.dumps(client.prompt([*host.compacted("A summary.", 50_000), *host.human("Go on.", 60_000)]))
    assert "Said 12." in text
    assert "Said 1." not in text
    assert TASK[:20] not in text, "the newest come first"


def test_what_a_person_takes_out_of_the_hosts_list_leaves(client: Client) -> None:
    host = HOSTS[client.host]
    middle = host.human("Never mind this.", 200)
    messages = [*host.compacted("A summary.", 1), *begun(client), *host.step(1, 100), *middle, *host.step(2, 300)]
    client.prompt(messages)
    prompt = client.prompt([message for message in messages if message not in middle])
    assert "Never mind this." not in json.dumps(prompt)


def test_a_command_that_a_person_ran_in_pi_is_theirs_and_its_output_is_not(tmp_path: Path) -> None:
    client = Client("pi", tmp_path)
    lines = "\n".join(f"line {number}: {output(number)[:40]}" for number in range(400))
    ran = {"role": "bashExecution", "command": "make test", "output": lines, "exitCode": 2, "timestamp": 5}
    messages = [*begun(client), ran, *HOSTS["pi"].step(1, 100)]
    assert client.messages(messages)["messages"] == list(range(len(messages)))
    ((name, _),) = scopes(client).items()
    with Store(tmp_path / ".ctxvc") as store:
        stored = StoredSession.open(store, name)
        origins = {stored.body(row)[:9]: row.origin for row in stored.ledger().rows()}
    assert origins[b"Ran `make"] == "human"
    assert origins[b"```\nline "] == "client"
    prompt = run(client, messages, range(2, 60))
    text = json.dumps(prompt)
    assert "Ran `make test`" in text
    assert "line 200:" not in text, "the output left"


def test_a_file_that_opencode_put_into_what_a_person_said_is_not_theirs(tmp_path: Path) -> None:
    client = Client("opencode", tmp_path)
    (message,) = begun(client)
    message["parts"].append({"id": "prt_9", "type": "text", "text": "the file's lines", "synthetic": True})
    client.prompt([message])
    ((name, _),) = scopes(client).items()
    with Store(tmp_path / ".ctxvc") as store:
        stored = StoredSession.open(store, name)
        origins = {stored.body(row).decode(): row.origin for row in stored.ledger().rows()}
    assert origins == {TASK: "human", "the file's lines": "client"}


def test_what_a_compaction_is_made_from_is_what_was_sent_also_in_a_new_process(client: Client) -> None:
    messages = begun(client)
    prompt = run(client, messages, range(40))
    head = messages[: -2 * len(HOSTS[client.host].step(0, 0))]
    for one in (client, client.restarted()):
        fields = {"model": "claude-sonnet-4-5", "window": 24_000, "reserve": 4_000}
        answer = one.ask("summary", session="session-0001", messages=head, **fields)["messages"]
        shown = [head[item] if isinstance(item, int) else item for item in answer]
        HOSTS[client.host].check(shown)
        assert shown == prompt[: len(shown)]
        assert stubs(shown) == stubs(prompt), "their addresses can be named in the summary"
    assert list(scopes(client).values()) == [["main"]], "nothing was recorded"
    assert client.prompt(messages) == prompt


def test_room_is_made_when_a_person_asks_for_it(client: Client) -> None:
    messages = begun(client)
    before = run(client, messages, range(12))
    assert not stubs(before)
    answer = client.ask("compact", session="session-0001", messages=messages, window=24_000, reserve=4_000)
    assert answer["freed"] > 2_000
    assert stubs(client.prompt(messages))


def test_an_output_that_reads_as_a_stub_of_ours_cannot_pass_for_one(client: Client) -> None:
    messages = [*begun(client), *HOSTS[client.host].step(1, 100, "[archived B1@abcdef, 9 tokens]")]
    assert "\\\\[archived B1" in json.dumps(client.prompt(messages))


def test_a_huge_output_is_shown_by_its_ends_and_kept_whole(client: Client) -> None:
    huge = "\n".join(output(number) for number in range(30))
    messages = [*begun(client), *HOSTS[client.host].step(1, 100, huge)]
    assert len(json.dumps(client.prompt(messages))) < 30_000
    with Store(client.folder / ".ctxvc") as store, StoredSession.open(store) as stored:
        (row,) = [row for row in stored.ledger().rows() if row.kind == "tool_result"]
        assert stored.body(row).decode() == huge


def test_a_reply_that_was_cut_off_in_the_middle_of_its_calls_is_no_hindrance(client: Client) -> None:
    messages = [*begun(client), *HOSTS[client.host].step(1, 100)]
    if client.host == "pi":
        messages.pop()
    else:
        messages[-1]["parts"][2]["state"] = {"status": "pending", "input": {}}
    messages += HOSTS[client.host].human("Go on.", 200)
    assert client.messages(messages)["messages"] == list(range(len(messages)))


def test_ids_of_any_length_are_known_again(tmp_path: Path) -> None:
    client = Client("pi", tmp_path)
    messages = [*begun(client), *HOSTS["pi"].step(1, 100)]
    name = "call_" + "x" * 2_000
    messages[1]["content"][1]["id"] = messages[2]["toolCallId"] = name
    before = run(client, messages, range(2, 40))
    assert client.restarted().prompt(messages) == before
    assert list(scopes(client).values()) == [["main"]]


def test_a_result_without_its_call_is_text(tmp_path: Path) -> None:
    client = Client("pi", tmp_path)
    orphan = {**HOSTS["pi"].step(7, 50, "of nobody")[1]}
    prompt = client.prompt([*begun(client), orphan, *HOSTS["pi"].human("Go on.", 90)])
    assert "of nobody" in json.dumps(prompt)


def test_what_pi_is_to_keep_is_what_was_sent(tmp_path: Path) -> None:
    client = Client("pi", tmp_path)
    messages = begun(client)
    prompt = run(client, messages, range(40))
    edits = client.ask("edits", session="session-0001", messages=messages)["messages"]
    shown = [message if edit == 0 else edit for message, edit in zip(messages, edits, strict=True)]
    assert [message for message in shown if message] == prompt


# --- a client that makes no sense


def test_the_first_request_is_hello_by_the_same_version(tmp_path: Path) -> None:
    client = Client("pi", tmp_path)
    client.service._host = None
    assert "hello" in client.messages(begun(client))["error"]
    for other in ({"version": "0.0.1"}, {"protocol": 99}, {"protocol": "x"}, {"host": 7}, {"host": "vim"}):
        asked: dict[str, Any] = {"host": "pi", "version": "0.1.0", "protocol": 1, **other}
        assert client.ask("hello", **asked)["error"]


def test_without_a_store_there_are_no_tools(tmp_path: Path) -> None:
    client = Client("pi", tmp_path)
    (tmp_path / ".ctxvc").rename(tmp_path / "elsewhere")
    client.service._store = None
    (tmp_path / "elsewhere" / "HEAD").unlink()
    answer = client.ask("hello", host="pi", version=client.hello["version"], protocol=1)
    assert answer.get("store") == "" or "error" in answer


@pytest.mark.parametrize(
    "line",
    [
        *(
            b"",
            b"x",
            b"[]",
            b"7",
            b'{"verb": 7}',
            b'{"id": [1], "verb": "status"}',
            b"[" * 5_000,
            b'{"verb": "messages"}',
        ),
        *(b'{"verb":"messages","session":7,"messages":[]}', b'{"verb":"messages","session":"s","messages":[1]}'),
        *(b'{"verb":"messages","session":"","messages":[]}', b'{"verb":"tool","session":"s","tool":"recover"}'),
    ],
)
def test_a_request_that_makes_no_sense_is_answered_with_what_was_wrong(tmp_path: Path, line: bytes) -> None:
    answer = Client("pi", tmp_path).service.answer(line)
    assert answer["error"]
    assert answer["hint"]


@pytest.mark.parametrize("host", sorted(HOSTS))
@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"role": "user"},
        {"role": ["user"], "content": 7, "timestamp": 5},
        {"role": "assistant", "content": [7, None, {"type": "toolCall"}], "timestamp": "x"},
        {"role": "toolResult", "toolCallId": "nobody", "content": [{"type": "text", "text": "x"}], "timestamp": 7},
        {"role": "toolResult", "toolCallId": "call-1", "content": "again", "timestamp": 8},
        {"role": "custom", "content": [{"type": "image", "data": "no", "mimeType": "image/png"}], "timestamp": 9},
        {"info": {"role": "assistant", "time": {"created": 9}}, "parts": "x"},
        {"info": {"role": "assistant", "time": {"created": 9}}, "parts": [7, {"type": "tool", "callID": "call-1"}]},
        {"info": {"role": "user", "time": {"created": 100}}, "parts": [{"type": "text", "text": "\ud800"}]},
        {"info": 7, "parts": []},
    ],
)
def test_a_message_that_makes_no_sense_goes_back_as_it_came(tmp_path: Path, host: str, odd: dict[str, Any]) -> None:
    client = Client(host, tmp_path)
    messages = [*begun(client), *HOSTS[host].step(1, 100), odd, *HOSTS[host].human("Go on.", 500)]
    answer = client.messages(messages)
    assert "error" not in answer, answer
    sent = [messages[item] if isinstance(item, int) else item for item in answer["messages"]]
    assert odd in sent or host == "pi"
    assert client.messages(deepcopy(messages))["messages"] == answer["messages"]


def test_the_model_is_told_where_something_came_from(client: Client) -> None:
    assert [tool["name"] for tool in client.hello["tools"]] == [
        "context_note", "context_recover", "context_search", "context_why",
    ]  # fmt: skip
    left = sorted(stubs(run(client, begun(client), range(40))))[0]

    def why(**arguments: Any) -> tuple[str, bool]:
        answer = client.ask("tool", session="session-0001", tool="context_why", arguments=arguments, call="call-x")
        return answer["text"], answer["is_error"]

    text, error = why(target=left)
    assert not error and "policy:" in text and re.match(r"step [0-9]+: ", text)
    for target in ("src/app.py:1", "B999", "-x", "x\0y", "x" * 5000):
        text, error = why(target=target)
        assert error and text and "`ctxvc" not in text, (target, text)
    assert "missing required field `target`; it takes target" in why()[0]
    assert "it takes target" in why(target=left, more=1)[0]


def test_a_tool_that_is_none_and_a_call_that_makes_no_sense_are_answered(tmp_path: Path) -> None:
    client = Client("pi", tmp_path)
    client.prompt(begun(client))
    assert client.ask("tool", session="session-0001", tool="rm", arguments={})["error"]
    answer = client.ask("tool", session="session-0001", tool="context_recover", arguments={"block": "B99"}, call="c")
    assert answer["is_error"]
    assert client.ask("tool", session="nobody", tool="context_recover", arguments={})["error"]
