"""What each agent needs to send its requests to the proxy: one table, with a row per agent."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ctxvc.errors import BadInput


class Agent(NamedTuple):
    """How an agent is pointed at the proxy, for one process.

    In values, `{anthropic}`, `{openai}`, `{gemini}` and `{codex}` stand for the proxy's base URLs, without the version
    that some clients want in them, `{any}` for the URL under which a request's path decides its provider, and `{hooks}`
    for the folder with our files for other programs.
    A variable that the person has set names the upstream (`upstreams`); a JSON object is merged with the person's.
    """

    program: str
    env: Mapping[str, str] = {}
    #: Variables that are replaced only where the person has set them: without them the agent finds its provider
    #: elsewhere.
    replaced: Mapping[str, str] = {}
    arguments: tuple[str, ...] = ()
    #: Upstreams whose client drops the path of a base URL: each has a port of its own, without a key.
    keyless: tuple[str, ...] = ()
    #: A file of settings that yield to the person's own: the variable that names it, and its contents.
    defaults: tuple[str, str] = ("", "")
    #: What a person should know.
    note: str = ""


_ANTHROPIC = {"ANTHROPIC_BASE_URL": "{anthropic}"}
_OPENAI = {"OPENAI_BASE_URL": "{openai}/v1"}
_GEMINI = {"GOOGLE_GEMINI_BASE_URL": "{gemini}"}
#: LiteLLM has its own names, which take precedence for Anthropic and Gemini.
_LITELLM = {
    **_ANTHROPIC,
    **_OPENAI,
    "OPENAI_API_BASE": "{openai}/v1",
    "ANTHROPIC_API_BASE": "{anthropic}",
    "GEMINI_API_BASE": "{gemini}/v1beta",
}
_OPENCODE = {
    "provider": {
        "anthropic": {"options": {"baseURL": "{anthropic}/v1"}},
        "openai": {"options": {"baseURL": "{openai}/v1"}},
        "google": {"options": {"baseURL": "{gemini}/v1beta"}},
    }
}
_PI = {"anthropic": "{anthropic}", "openai": "{openai}/v1", "google": "{gemini}/v1beta"}
#: Every variable that clients read, for commands without a row.
ANY = Agent("", env={**_LITELLM, **_GEMINI})

AGENTS: Mapping[str, Agent] = {
    "claude": Agent("claude", env=_ANTHROPIC),
    "codex": Agent(
        "codex",
        arguments=("-c", 'openai_base_url="{codex}/v1"'),
        note="with a key or a ChatGPT login; a model_provider of your own in its configuration is not recorded",
    ),
    "gemini": Agent(
        "gemini",
        env=_GEMINI,
        # Given only a base URL and a key, it takes them for a gateway's, and refuses that.
        defaults=(
            "GEMINI_CLI_SYSTEM_DEFAULTS_PATH",
            json.dumps({"security": {"auth": {"selectedType": "gemini-api-key"}}}),
        ),
        note="with a key; a login with Google has another API, and is not recorded",
    ),
    "copilot": Agent(
        "copilot",
        replaced={"COPILOT_PROVIDER_BASE_URL": "{any}"},
        note="it is recorded with a provider of your own: set COPILOT_PROVIDER_BASE_URL, and a key and a model with it",
    ),
    "opencode": Agent("opencode", env={"OPENCODE_CONFIG_CONTENT": json.dumps(_OPENCODE)}),
    "pi": Agent(
        "pi",
        env={"CTXVC_PI_BASE_URLS": json.dumps(_PI)},
        arguments=("-e", "{hooks}/pi/index.js"),
        note="a provider that has a base URL in models.json keeps it, and is not recorded",
    ),
    "qwen": Agent("qwen", env={**_OPENAI, **_ANTHROPIC, **_GEMINI}),
    "crush": Agent(
        "crush",
        env={
            "ANTHROPIC_API_ENDPOINT": "{anthropic}",
            "OPENAI_API_ENDPOINT": "{openai}/v1",
            "GEMINI_API_ENDPOINT": "{gemini}",
        },
    ),
    "aider": Agent("aider", env=_LITELLM),
    "mini": Agent("mini", env=_LITELLM),
    "openhands": Agent(
        "openhands",
        env=_LITELLM,
        replaced={"LLM_BASE_URL": "{any}"},
        note="with --override-with-envs, without which it reads no LLM_… variable",
    ),
    "goose": Agent("goose", env={"ANTHROPIC_HOST": "{anthropic}", "OPENAI_HOST": "{openai}"}),
}


class Settings(NamedTuple):
    """The settings for one process: its program, the arguments before its own, and variables.

    `files` maps variables that name a file of ours to its contents.
    """

    program: str
    arguments: tuple[str, ...]
    env: dict[str, str]
    files: dict[str, str] = {}


def settings(agent: Agent, urls: Mapping[str, str], env: Mapping[str, str]) -> Settings:
    """The settings for an agent in the environment `env`; `urls` has the value for each name in braces.

    Raises: BadInput if nothing of the agent would be recorded.
    """
    variables = _variables(agent, env)
    if not variables and not agent.arguments:
        raise BadInput(f"nothing of {agent.program} would be recorded", hint=agent.note)
    values = {name: _merged(_filled(value, urls), env.get(name, "")) for name, value in variables.items()}
    return Settings(
        agent.program,
        tuple(_filled(argument, urls) for argument in agent.arguments),
        {**values, **_beside_the_networks_proxy(env)},
        dict([agent.defaults]) if agent.defaults[0] and not env.get(agent.defaults[0]) else {},
    )


def upstreams(agent: Agent, env: Mapping[str, str]) -> dict[str, str]:
    """The base URL of each upstream that the person's own variables name, as the agent would use it."""
    urls: dict[str, str] = {}
    for variable, value in _variables(agent, env).items():
        match = re.match(r"\{([a-z]+)\}(.*)", value)
        if not (match and env.get(variable, "").startswith(("http://", "https://"))):
            continue
        name, ending = match.groups()
        base = env[variable].rstrip("/")
        if name == "openai":  # its base URL includes a version
            urls.setdefault(name, base if ending else f"{base}/v1")
        for upstream in ("anthropic", "openai", "gemini") if name == "any" else (name,):
            urls.setdefault(upstream, base.removesuffix(ending))
    return urls


def _variables(agent: Agent, env: Mapping[str, str]) -> dict[str, str]:
    return {**agent.env, **{name: value for name, value in agent.replaced.items() if env.get(name)}}


def _filled(text: str, urls: Mapping[str, str]) -> str:
    for name, url in urls.items():
        text = text.replace(f"{{{name}}}", url)
    return text


def _merged(value: str, own: str) -> str:
    """A JSON object merged over the person's own; anything else unchanged."""
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
    """Variables that except this machine from the network's proxy, if the person's clients use one."""
    if not any(env.get(name) for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")):
        return {}
    here = "127.0.0.1"
    names = (name for name in ("no_proxy", "NO_PROXY") if here not in env.get(name, "").split(","))
    return {name: ",".join(filter(None, (env.get(name, ""), here))) for name in names}
