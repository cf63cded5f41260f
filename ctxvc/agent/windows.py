"""A model's window in tokens, as its server reports it, or the servers behind a gateway that reports none."""

from __future__ import annotations

import ipaddress
import json
import re
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from ctxvc.agent.model import ModelFailed
from ctxvc.agent.refusal import LEAST_WINDOW

#: Places that servers of local models and gateways have.
LOCAL = frozenset({"/props", "/api/ps", "/api/show", "/api/v0/models", "/model/info"})

#: Seconds that a server may take to answer all of it.
SECONDS = 5.0


class Window(msgspec.Struct, frozen=True):
    """The tokens that a model takes for prompt and reply, and the path that reports them, as in `/props`.

    One that is not `certain` is the default of such a server. `server` is host and port of the server behind a gateway
    that was asked; empty for the model's own.
    """

    tokens: int
    source: str
    certain: bool = True
    server: str = ""

    @property
    def place(self) -> str:
        """The path that reports it, with its server behind a gateway, for people."""
        return f"{self.source} of {self.server}" if self.server else self.source


class Fetch(Protocol):
    """The JSON at a path of a server, by POST where there is a body; None where it has none there."""

    def __call__(self, path: str, body: Mapping[str, Any] | None = None, *, timeout: float) -> object: ...


def discovered(fetch: Fetch, model: str, seconds: float = SECONDS, *, address: str = "") -> Window | None:
    """The window of a model; None if its server does not say, or not within `seconds` in all.

    `address` is the server's. If it is a gateway of this machine, the servers of this machine behind it are asked, too:
    the least window counts. Raises: ModelFailed if the server cannot be asked anything.
    """
    results: list[Window | ModelFailed | None] = []

    def look() -> None:
        try:
            results.append(_discovered(fetch, model, time.monotonic() + seconds, address))
        except ModelFailed as error:
            results.append(error)

    # A client's time-out is for each read: a server that sends a byte a second is not bounded by it.
    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(seconds)
    match results:
        case [ModelFailed() as error]:
            raise error
        case [Window() as window]:
            return window
    return None


#: Where a model's window may be, in this order: what was loaded for less than the model could take is only in the
#: servers' own places, which come before the list.
_PLACES = ("/v1/models/{}", "/props", "/api/ps", "/api/show", "/api/v0/models", "/model/info", "/v1/models")


def _discovered(fetch: Fetch, model: str, end: float, address: str = "") -> Window | None:
    for number, place in enumerate(_PLACES):
        path = place.format(_quoted(model))
        seconds = end - time.monotonic()
        if seconds <= 0:
            break
        try:
            answer = fetch(path, {"model": model} if path == "/api/show" else None, timeout=seconds)
        except ModelFailed:
            if not number:
                raise
            continue  # some refuse the key at a path that they do not have
        window = Window(tokens, path) if (tokens := _tokens(path, answer, model)) else None
        servers = upstreams(answer, model, address) if path == "/model/info" else []
        if windows := [*filter(None, (window,)), *_upstream_windows(servers, end)]:
            return min(windows, key=lambda one: one.tokens)
        if path == "/api/show" and isinstance(answer, dict) and "model_info" in answer:
            return Window(_OLLAMA, path, certain=False)
    return None


def _upstream_windows(servers: Sequence[Upstream], end: float) -> list[Window]:
    """The windows that the servers behind a gateway report. A gateway among them is not asked for its own."""
    windows = ((upstream, _discovered(upstream.fetch, upstream.model, end)) for upstream in servers)
    return [msgspec.structs.replace(window, server=upstream.name) for upstream, window in windows if window]


#: What Ollama gives a model on a small machine where neither the model nor a person sets `num_ctx` (its
#: docs/context-length.mdx). It cuts what is longer in silence, so the least is assumed.
_OLLAMA = 4_096


#: The tokens in a model's entry, most telling first: what is loaded comes before what would be possible. The names are
#: of LM Studio, the Messages API, vLLM, OpenRouter, LM Studio again; llama.cpp has `n_ctx` in `meta`, OpenRouter the
#: window of the provider that it would choose in `top_provider`.
_NAMES = ("loaded_context_length", "max_input_tokens", "max_model_len", "context_length", "max_context_length", "n_ctx")


def _of_model(answer: object) -> int:
    if not isinstance(answer, dict):
        return 0
    for entry in (answer, answer.get("meta"), answer.get("top_provider"), answer.get("model_info")):
        if isinstance(entry, dict) and (tokens := next(filter(None, (_size(entry.get(name)) for name in _NAMES)), 0)):
            return tokens
    return 0


def _tokens(path: str, answer: object, model: str) -> int:
    """The window in the answer at one of the `_PLACES`; 0 if it has none."""
    entries = _entries(answer)
    match path, answer:
        case "/props", {"default_generation_settings": {"n_ctx": tokens}}:  # llama.cpp: of one slot, as a request has
            return _size(tokens)
        case "/api/ps", _:  # Ollama: what a running model was loaded with
            running = (entry for entry in entries if entry.get("name") in (model, f"{model}:latest"))
            return next((_size(entry.get("context_length")) for entry in running), 0)
        case "/api/show", {"parameters": str(parameters)}:  # Ollama: what the model sets, not what it was trained for
            match = re.search(r"^num_ctx\s+(\d{1,9})\s*$", parameters, re.MULTILINE)
            return _size(int(match[1])) if match else 0
        case (("/api/v0/models" | "/model/info" | "/v1/models"), _):
            names = ("id", "name", "model_name")
            matches = [entry for entry in entries if model in map(entry.get, names)]
            # Where it has one model only, a server serves that under any name.
            return _of_model(matches[0] if matches else entries[0] if len(entries) == 1 else None)
    return _of_model(answer) if path.startswith("/v1/models/") else 0


def _entries(answer: object) -> list[dict[str, Any]]:
    models = answer.get("data") or answer.get("models") if isinstance(answer, dict) else None
    return [entry for entry in models if isinstance(entry, dict)] if isinstance(models, list) else []


def _quoted(model: str) -> str:
    """A model's name as a part of a path; a slash in it stays one."""
    return re.sub(
        r"[^\w.~/:@-]",
        lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "replace")),
        model,
        flags=re.A,
    )


def _size(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= LEAST_WINDOW else 0


#: Scheme, host and port of an address.
_ADDRESS = re.compile(r"(https?)://(?:\[([0-9a-f:.]{2,45})\]|([a-z0-9.]{1,45}))(?::([0-9]{1,5}))?(?:/.*)?", re.I | re.A)
#: Bytes of an answer that are read at most.
_LARGEST = 4 << 20
#: Servers behind one name that are asked.
_MOST = 8


class Upstream(NamedTuple):
    """A server behind a gateway: its address (`http://127.0.0.1:8080`), and the model's name there."""

    url: str
    model: str

    @property
    def name(self) -> str:
        """Host and port."""
        return self.url.partition("://")[2]

    def fetch(self, path: str, body: Mapping[str, Any] | None = None, *, timeout: float) -> object:
        """The JSON at a path of the server; None where it has none there.

        No key and no cookie goes with it: the address is a gateway's word. Proxies and redirects are not followed.
        """
        import httpx2

        try:
            with httpx2.Client(trust_env=False, timeout=timeout) as client:
                method = "GET" if body is None else "POST"
                with client.stream(method, self.url + path, json=body) as response:
                    data = bytearray()
                    for chunk in response.iter_bytes():
                        data += chunk
                        if len(data) > _LARGEST:
                            return None
                    return json.loads(data) if response.status_code == 200 else None
        except (httpx2.HTTPError, ValueError, RecursionError):
            return None


def upstreams(answer: object, model: str, gateway: str) -> list[Upstream]:
    """The servers on this machine that a gateway, itself on this machine, has for a model.

    `answer` is that of LiteLLM's `/model/info`: a name may have several deployments. What a gateway elsewhere calls
    127.0.0.1 is not this machine, so then there are none.
    """
    here = _local(gateway)
    entries = answer.get("data") if here and isinstance(answer, dict) else None
    servers: list[Upstream] = []
    for entry in entries if isinstance(entries, list) else ():
        match entry:
            case {"model_name": str(name), "litellm_params": {"api_base": str(base), "model": str(own)}} if (
                name == model
            ):
                url = _local(base)
                upstream = Upstream(url, own.partition("/")[2] or own)
                if url and url != here and upstream not in servers:
                    servers.append(upstream)
    return servers[:_MOST]


def _local(url: str) -> str:
    """An address without its path, if only programs of this machine have it; empty for another."""
    match = _ADDRESS.fullmatch(url)
    if not match:
        return ""
    scheme, ipv6, name = match[1].lower(), match[2], (match[3] or "").lower()
    port = int(match[4] or ("443" if scheme == "https" else "80"))
    if port > 65_535:
        return ""
    try:
        if name != "localhost" and not ipaddress.ip_address(ipv6 or name).is_loopback:
            return ""
    except ValueError:
        return ""
    return f"{scheme}://{f'[{ipv6}]' if ipv6 else name}:{port}"
