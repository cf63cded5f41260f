"""Routes requests to their upstreams, and rewrites their heads. Pure: nothing is sent here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ctxvc.errors import BadInput
from ctxvc.forms import form

#: The providers' own API hosts. `codex` is the one that Codex uses with a ChatGPT login.
HOSTS: Mapping[str, str] = {
    "anthropic": "https://api.anthropic.com",
    "openai": "https://api.openai.com/v1",
    "gemini": "https://generativelanguage.googleapis.com",
    "codex": "https://chatgpt.com/backend-api/codex",
}
#: The variables with which a person sends clients to another host than the provider's.
VARIABLES: Mapping[str, tuple[str, ...]] = {
    "anthropic": ("ANTHROPIC_BASE_URL",),
    "openai": ("OPENAI_BASE_URL", "OPENAI_API_BASE"),
    "gemini": ("GOOGLE_GEMINI_BASE_URL",),
    "codex": (),
}
#: Upstreams whose base URL already includes `/v1`, as in their clients.
_VERSIONED = ("openai", "codex")

_URL = re.compile(r"(https?)://(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::([0-9]{1,5}))?(/[!-~]*)?", re.I | re.A)

#: Other paths that identify their provider.
_PATHS = (("/v1/messages", "anthropic"), ("/v1beta", "gemini"), ("/v1alpha", "gemini"))
#: Headers that identify the provider if several providers have the path.
_HEADERS = (("anthropic-version", "anthropic"), ("x-goog-api-key", "gemini"), ("x-api-key", "anthropic"))
#: The header that distinguishes a ChatGPT login from a key.
_ACCOUNT = "chatgpt-account-id"

#: Headers of a request that are for the proxy itself.
_OURS = (b"proxy-authorization", b"proxy-connection", b"upgrade", b"http2-settings")
#: What a `Connection` header may name and still pass: it is equally true of the connection to the upstream, which has
#: the same messages and ends with the client's.
_MIRRORED = (b"close", b"keep-alive", b"te")
#: What it may name without effect: a request without them would be a different one.
_FRAMING = (b"host", b"content-length", b"transfer-encoding", b"trailer")

#: Headers that are only true of the client's own body; a body that was read whole is no longer expected.
_BODYS = (b"content-encoding", b"transfer-encoding", b"trailer", b"expect")


class Upstream(NamedTuple):
    """A provider's API: where requests go. `base` is the path before theirs, without a final slash."""

    name: str
    tls: bool
    host: str
    port: int
    base: str = ""

    @property
    def authority(self) -> str:
        """`HOST[:PORT]`, as in a `Host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://{self.authority}{self.base}"


class Route(NamedTuple):
    """Where a request goes: the target in its first line, and the path below the upstream's base URL."""

    upstream: Upstream
    target: str
    path: str


def upstream(name: str, url: str) -> Upstream:
    """The upstream of this name at a base URL. Raises: BadInput for an unknown name or a bad base URL."""
    if name not in HOSTS:
        raise BadInput(f"there is no upstream {name[:40]!r}", hint=f"one of {', '.join(HOSTS)}")
    match = _URL.fullmatch(url.strip())
    port = int(match[4] or (443 if match[1].lower() == "https" else 80)) if match else 0
    if not match or port > 65_535 or re.search(r"[?#]", match[5] or ""):
        raise BadInput(
            f"{url[:80]!r} is not a base URL for {name}", hint="as in https://HOST/PATH, without a key or a query"
        )
    return Upstream(name, match[1].lower() == "https", match[2] or match[3], port, (match[5] or "").rstrip("/"))


def upstreams(urls: Mapping[str, str], env: Mapping[str, str]) -> dict[str, Upstream]:
    """Each upstream by name: at its URL in `urls`, else where the environment sends clients, else the provider's host.

    Raises: BadInput.
    """
    variables = {name: next((env[key] for key in keys if env.get(key)), "") for name, keys in VARIABLES.items()}
    return {name: upstream(name, url) for name, url in {**HOSTS, **_set(variables), **_set(urls)}.items()}


def _set(values: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in values.items() if value}


def route(upstreams: Mapping[str, Upstream], target: str, headers: Mapping[str, str], fixed: str = "") -> Route:
    """The route of a request whose target, below the key, is `/[UPSTREAM/]PATH[?QUERY]`.

    Without an upstream's name, the path decides, else the headers, whose names are in lower case. With `fixed`,
    everything goes to that upstream.
    """
    path, mark, query = target.partition("?")
    first, _, below = path[1:].partition("/")
    if fixed:
        name = fixed
    elif first in HOSTS:
        name, path = first, f"/{below}"
    else:
        name = _provider(path, headers)
    if name == "codex" and _ACCOUNT not in headers:
        name = "openai"
    if name in _VERSIONED and path.startswith("/v1/"):
        path = path.removeprefix("/v1")
    return Route(upstreams[name], f"{upstreams[name].base}{path}{mark}{query}", path)


def _provider(path: str, headers: Mapping[str, str]) -> str:
    if _ACCOUNT in headers:
        return "codex"
    if call := form.call(path):
        return call.provider
    by_path = next((name for beginning, name in _PATHS if path.startswith(beginning)), "")
    return by_path or next((name for header, name in _HEADERS if header in headers), "openai")


def with_body(headers: Sequence[tuple[bytes, bytes]], length: int, *, plain: bool = False) -> list[tuple[bytes, bytes]]:
    """The headers of a request for another body of this length. `plain` asks for an answer without an encoding."""
    changed = {b"content-length": b"%d" % length, **({b"accept-encoding": b"identity"} if plain else {})}
    present = {name.lower() for name, _ in headers}
    passing = [(name, changed.get(name.lower(), value)) for name, value in headers if name.lower() not in _BODYS]
    return [*passing, *((name.title(), value) for name, value in changed.items() if name not in present)]


def head(
    method: bytes, target: str, version: bytes, headers: Sequence[tuple[bytes, bytes]], upstream: Upstream
) -> bytes:
    """The head of a request for the upstream: the client's own headers in their order and spelling, except `Host` and
    those that are for the proxy itself.
    """
    options = {
        token.strip().lower() for name, value in headers if name.lower() == b"connection" for token in value.split(b",")
    }
    dropped = {*_OURS, *options}.difference(_MIRRORED, _FRAMING)
    lines = [b"%s %s HTTP/%s" % (method, target.encode("latin-1"), version)]
    for name, value in headers:
        lowered = name.lower()
        if lowered == b"host":
            lines.append(b"%s: %s" % (name, upstream.authority.encode()))
        elif lowered == b"connection" and not options.issubset(_MIRRORED):
            if mirrored := sorted(options.intersection(_MIRRORED)):
                lines.append(b"%s: %s" % (name, b", ".join(mirrored)))
        elif lowered not in dropped:
            lines.append(b"%s: %s" % (name, value))
    return b"\r\n".join(lines) + b"\r\n\r\n"
