"""What each agent needs to send its requests to the proxy: one table, a row an agent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple


class Agent(NamedTuple):
    """How an agent is pointed at the proxy, for one process.

    In values, `{anthropic}`, `{openai}`, `{gemini}` and `{codex}` stand for base URLs of the proxy. A variable that the
    person has set names the upstream that its base URL stands for (`upstream_of`); one whose value is a JSON object is
    merged with theirs.
    """

    program: str = ""
    env: Mapping[str, str] = {}
    arguments: tuple[str, ...] = ()
    #: Upstreams whose client drops a path before its own: each has a port of its own, without a key.
    keyless: tuple[str, ...] = ()
    #: A variable that has to be set for it to speak to the upstream at all, and what else a person should know.
    note: str = ""


_ANTHROPIC = {"ANTHROPIC_BASE_URL": "{anthropic}"}
_OPENAI = {"OPENAI_BASE_URL": "{openai}", "OPENAI_API_BASE": "{openai}"}
_GEMINI = {"GOOGLE_GEMINI_BASE_URL": "{gemini}"}
#: LiteLLM has names of its own for two of them.
_LITELLM = {**_ANTHROPIC, **_OPENAI, "ANTHROPIC_API_BASE": "{anthropic}", "GEMINI_API_BASE": "{gemini}/v1beta"}
#: Every variable that clients read: for commands that are in no row.
ANY = Agent(env={**_LITELLM, **_GEMINI})

AGENTS: Mapping[str, Agent] = {
    "claude": Agent("claude", env=_ANTHROPIC),
    "codex": Agent("codex", arguments=("-c", 'openai_base_url="{codex}"')),
    "gemini": Agent("gemini", env=_GEMINI, note="a login with Google is not recorded: it has another API"),
    "copilot": Agent(
        "copilot",
        env={"COPILOT_PROVIDER_BASE_URL": "{openai}"},
        note="only a provider of your own is recorded (COPILOT_PROVIDER_TYPE, COPILOT_PROVIDER_API_KEY)",
    ),
    "opencode": Agent(
        "opencode",
        env={
            "OPENCODE_CONFIG_CONTENT": json.dumps(
                {
                    "provider": {
                        "anthropic": {"options": {"baseURL": "{anthropic}/v1"}},
                        "openai": {"options": {"baseURL": "{openai}"}},
                        "google": {"options": {"baseURL": "{gemini}/v1beta"}},
                    }
                }
            )
        },
    ),
    "qwen": Agent("qwen", env={**_OPENAI, **_ANTHROPIC}),
    "crush": Agent("crush", env={**_OPENAI, **_ANTHROPIC}),
    "aider": Agent("aider", env=_LITELLM),
    "mini": Agent("mini", env=_LITELLM),
    "openhands": Agent("openhands", env={**_LITELLM, "LLM_BASE_URL": "{openai}"}),
    "goose": Agent("goose", env={"ANTHROPIC_HOST": "{anthropic}/", "OPENAI_HOST": "{openai}"}),
}


class Settings(NamedTuple):
    """What is set for one process: its program, the arguments before its own, and variables."""

    program: str
    arguments: tuple[str, ...]
    env: dict[str, str]


def settings(agent: Agent, urls: Mapping[str, str], env: Mapping[str, str]) -> Settings:
    """What an agent needs where the proxy has a base URL for each upstream, in an environment that is `env`."""
    values = {name: _merged(_filled(value, urls), env.get(name, "")) for name, value in agent.env.items()}
    return Settings(
        agent.program,
        tuple(_filled(argument, urls) for argument in agent.arguments),
        {**values, **_beside_the_networks_proxy(env)},
    )


def upstream_of(agent: Agent, env: Mapping[str, str]) -> dict[str, str]:
    """The upstreams that the person's own variables name: upstream → base URL, as the agent itself would use it."""
    named: dict[str, str] = {}
    for variable, value in agent.env.items():
        for upstream in ("anthropic", "openai", "gemini"):
            prefix, _, suffix = value.partition(f"{{{upstream}}}")
            own = env.get(variable, "")
            if not prefix and value != own and own.startswith(("http://", "https://")):
                named.setdefault(upstream, own.rstrip("/").removesuffix(suffix.rstrip("/")))
    return named


def _filled(text: str, urls: Mapping[str, str]) -> str:
    for name, url in urls.items():
        text = text.replace(f"{{{name}}}", url)
    return text


def _merged(value: str, own: str) -> str:
    """A JSON object with what the person's has beside it; anything else as it is."""
    if not (own and value.startswith("{")):
        return value
    try:
        return json.dumps(_over(json.loads(own), json.loads(value)))
    except ValueError:
        return value


def _over(own: Any, ours: Any) -> Any:
    if isinstance(own, dict) and isinstance(ours, dict):
        return {**own, **{name: _over(own.get(name), value) for name, value in ours.items()}}
    return ours


def _beside_the_networks_proxy(env: Mapping[str, str]) -> dict[str, str]:
    """Where a person's clients use a proxy of the network, this machine is excepted from it."""
    if not any(env.get(name) for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")):
        return {}
    here = "127.0.0.1"
    names = (name for name in ("no_proxy", "NO_PROXY") if here not in env.get(name, "").split(","))
    return {name: ",".join(filter(None, (env.get(name, ""), here))) for name in names}
