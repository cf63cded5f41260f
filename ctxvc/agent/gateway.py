"""The servers behind a gateway on this machine, which often does not know what window they have."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

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
