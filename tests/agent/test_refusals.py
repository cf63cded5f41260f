"""What servers answer instead of a reply, whatever it is, is one short line."""

from __future__ import annotations

import pytest

from ctxvc.agent.refusal import Fault, Overflow, refusal

HOSTILE = [
    "<html>" + "<" * 50_000,
    "<html>" + "<title>" * 9_000,
    "<html>" + "a<b " * 9_000,
    "9" * 90_000,
    "{" * 40_000,
    '{"error":' * 3_000,
    "[" * 40_000,
    "\x1b[2J" * 9_000,
    '{"error": {"message": "' + "x" * 90_000 + '"}}',
    b"\xff" * 9_000,
    {"error": {"message": {"a": [1, {"msg": ["deep"]}]}}},
    {"error": {"message": 7, "type": ["x"], "code": {}}},
    {"detail": [{"msg": 1}, 2, None]},
    {"error": ["a", "b"]},
    {"message": "context size", "n_ctx": "x", "n_prompt_tokens": -1},
    [],
    None,
    7,
    "",
    b"",
    {},
    {"error": {}},
    {"error": None},
    {"error": True},
]


@pytest.mark.timeout(60)  # in the square of their length, the largest would take minutes
@pytest.mark.parametrize("status", [0, 200, 400, 404, 413, 500])
@pytest.mark.parametrize("body", HOSTILE, ids=lambda body: str(body)[:12].encode("ascii", "replace").decode())
def test_whatever_a_server_answers_is_one_short_line(status: int, body: object) -> None:
    answer = refusal(status, body)
    assert isinstance(answer, Fault | Overflow)
    assert 0 < len(answer.text) < 400
    assert answer.text.isprintable()


@pytest.mark.parametrize(
    "message",
    [
        "max_tokens: 40000 > 32000, which is the maximum allowed number of output tokens",
        "messages.3: `tool_use` ids were found without `tool_result` blocks",
        "unknown field: context_management",
        "temperature must be <= 2",
    ],
)
def test_a_request_that_is_wrong_otherwise_is_not_taken_for_one_that_is_too_long(message: str) -> None:
    assert isinstance(refusal(400, {"error": {"type": "invalid_request_error", "message": message}}), Fault)


def test_what_helps_is_told_apart() -> None:
    kinds = {
        (401, "no"): "key",
        (404, "model x not found"): "model",
        (404, "Not Found"): "failed",
        (429, "slow"): "busy",
        (529, "full"): "busy",
        (500, "oops"): "failed",
        (200, "oops"): "cut",
    }
    for (status, message), kind in kinds.items():
        answer = refusal(status, {"error": {"message": message, "type": "api_error"}})
        assert isinstance(answer, Fault)
        assert (answer.kind, answer.again) == (kind, kind == "cut"), message
    assert "ANTHROPIC_API_KEY" in str(getattr(refusal(401, {"error": {"message": "no"}}), "hint", ""))
    final = refusal(200, {"error": {"message": "no", "type": "invalid_request_error"}})
    assert isinstance(final, Fault)
    assert not final.again
