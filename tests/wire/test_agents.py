"""Where requests go, and what each agent is told of it: both as tables."""

from __future__ import annotations

import json

import pytest

from ctxvc.errors import BadInput
from ctxvc.forms import form
from ctxvc.wire import agents, forward
from ctxvc.wire.agents import AGENTS, ANY
from ctxvc.wire.exchange import identifying

ADDRESS = "http://127.0.0.1:1/KEY"
URLS = {**{name: f"{ADDRESS}/{name}" for name in forward.HOSTS}, "any": ADDRESS}
ENDS = {"anthropic": "/v1/messages", "openai": "/v1/responses", "gemini": "/v1beta/models/m:generateContent"}

#: What a client asks for below the key, its headers → the URL at the upstream, and what is recorded of it.
CLAUDE, GPT, GEMINI = "api.anthropic.com", "api.openai.com", "generativelanguage.googleapis.com"
LOGIN = {"chatgpt-account-id": "a"}
STREAM = "/v1beta/models/g:streamGenerateContent"
COUNT = "/v1/messages/count_tokens"
ROUTES: list[tuple[str, dict[str, str], str, str | None]] = [
    ("/v1/messages?beta=true", {}, f"{CLAUDE}/v1/messages?beta=true", "/v1/messages"),
    (f"/anthropic{COUNT}", {}, f"{CLAUDE}{COUNT}", COUNT),
    ("/v1/messages/batches", {}, f"{CLAUDE}/v1/messages/batches", None),
    ("/v1/chat/completions", {}, f"{GPT}/v1/chat/completions", "/v1/chat/completions"),
    ("/openai/chat/completions", {}, f"{GPT}/v1/chat/completions", "/v1/chat/completions"),
    ("/openai/v1/responses", {}, f"{GPT}/v1/responses", "/v1/responses"),
    ("/responses/compact", {}, f"{GPT}/v1/responses/compact", "/v1/responses/compact"),
    ("/codex/v1/responses", {}, f"{GPT}/v1/responses", "/v1/responses"),
    ("/codex/v1/responses", LOGIN, "chatgpt.com/backend-api/codex/responses", "/v1/responses"),
    ("/v1/responses", LOGIN, "chatgpt.com/backend-api/codex/responses", "/v1/responses"),
    (f"{STREAM}?alt=sse", {}, f"{GEMINI}{STREAM}?alt=sse", STREAM),
    (f"/gemini{STREAM}", {}, f"{GEMINI}{STREAM}", STREAM),
    ("/v1/models", {"anthropic-version": "x"}, f"{CLAUDE}/v1/models", None),
    ("/v1/models", {"authorization": "Bearer x"}, f"{GPT}/v1/models", None),
    ("/anthropic/v1/models", {}, f"{CLAUDE}/v1/models", None),
    ("/gemini", {}, f"{GEMINI}/", None),
]


@pytest.mark.parametrize(("target", "headers", "url", "recorded"), ROUTES)
def test_a_path_leads_to_its_provider(target: str, headers: dict[str, str], url: str, recorded: str | None) -> None:
    route = forward.route(forward.upstreams({}, {}), target, headers)
    call = form.call(route.path)

    assert f"{route.upstream.authority}{route.target}" == url
    assert (call.path if call else None) == recorded


def test_upstreams_are_what_is_said_else_what_the_environment_says() -> None:
    env = {"ANTHROPIC_BASE_URL": "http://localhost:4000/a/", "OPENAI_API_BASE": "https://gw.example/x/v1"}
    found = forward.upstreams({"anthropic": "http://[::1]:80/b"}, env)

    assert found["anthropic"] == forward.Upstream("anthropic", False, "::1", 80, "/b")
    assert found["anthropic"].authority == "[::1]"
    assert found["openai"].url == "https://gw.example/x/v1"
    assert found["gemini"].url == "https://generativelanguage.googleapis.com"


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("mistral", "https://a.example"),
        ("openai", "a.example"),
        ("openai", "https://user:key@a.example"),
        ("openai", "https://a.example/?key=1"),
        ("openai", "https://a.example:99999"),
        ("openai", "https://a.example/a b"),
        ("openai", "ftp://a.example"),
    ],
)
def test_what_is_no_upstream_is_refused(name: str, url: str) -> None:
    with pytest.raises(BadInput):
        forward.upstreams({name: url}, {})


@pytest.mark.parametrize("name", AGENTS)
def test_a_base_url_of_each_agent_leads_where_its_own_led(name: str) -> None:
    """A person has set each variable that the agent reads to a gateway: with the path that the client adds to it, a
    request goes to the same URL through the proxy.
    """
    agent = AGENTS[name]
    for variable, value in {**agent.env, **agent.replaced}.items():
        own = f"https://gateway.example/x{'/v1' if value == '{any}' else value.partition('}')[2]}"
        env = {variable: own}
        routes = forward.upstreams(agents.upstreams(agent, env), {})
        for provider, end in ENDS.items():
            if value.startswith(f"{{{provider}}}") or value == "{any}":
                path = end.removeprefix("/v1beta" if own.endswith("/v1beta") else "/v1" if provider == "openai" else "")
                path = end if provider == "openai" and not own.endswith("/v1") else path
                base = agents.settings(agent, URLS, env).env[variable]
                route = forward.route(routes, f"{base}{path}".removeprefix(ADDRESS), {})
                assert f"https://{route.upstream.authority}{route.target}" == f"{own}{path}", variable
                assert form.call(route.path)


def test_an_agent_that_would_not_be_recorded_is_told_why() -> None:
    with pytest.raises(BadInput) as refused:
        agents.settings(AGENTS["copilot"], URLS, {})

    assert "COPILOT_PROVIDER_BASE_URL" in str(refused.value.hint)


def test_a_persons_own_configuration_stays_beside_ours() -> None:
    own = {"theme": "dark", "provider": {"openai": {"options": {"timeout": 5}}, "mine": {}}}
    env = {"OPENCODE_CONFIG_CONTENT": json.dumps(own)}

    merged = json.loads(agents.settings(AGENTS["opencode"], URLS, env).env["OPENCODE_CONFIG_CONTENT"])

    assert merged["theme"] == "dark" and merged["provider"]["mine"] == {}
    assert merged["provider"]["openai"]["options"] == {"timeout": 5, "baseURL": f"{ADDRESS}/openai/v1"}


def test_this_machine_is_excepted_from_the_networks_proxy() -> None:
    env = {"HTTP_PROXY": "http://proxy.example:8080", "NO_PROXY": "a.example"}

    assert agents.settings(ANY, URLS, env).env["NO_PROXY"] == "a.example,127.0.0.1"
    assert agents.settings(ANY, URLS, env).env["no_proxy"] == "127.0.0.1"
    assert "NO_PROXY" not in agents.settings(ANY, URLS, {}).env


def test_no_header_that_authenticates_is_kept() -> None:
    secret = [
        "Authorization",
        "x-api-key",
        "x-goog-api-key",
        "api-key",
        "Cookie",
        "Proxy-Authorization",
        "X-Auth-Token",
    ]
    secret += [
        "x-codex-auth-token",
        "x-stainless-api-key",
        "chatgpt-account-id",
        "anthropic-admin-key",
        "session-token",
    ]
    safe = ["anthropic-version", "Anthropic-Beta", "X-Claude-Code-Session-Id", "session-id", "thread-id", "User-Agent"]
    safe += ["x-codex-turn-metadata", "x-stainless-lang", "OpenAI-Beta", "content-type"]

    assert identifying((name, "1") for name in secret + safe) == {name.lower(): "1" for name in safe}
