"""Version control for what an LLM agent sees.

What an agent's developer needs is here by name, and is imported when it is asked for: see docs/python.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctxvc.core.plan.plan import Action, Plan
    from ctxvc.core.view.budget import Budget
    from ctxvc.forms.conversion import convert
    from ctxvc.session.session import Session
    from ctxvc.store.store import Store
    from ctxvc.wire.http_client import async_http_client, http_client

__version__ = "0.2.0"
__all__ = ["Action", "Budget", "Plan", "Session", "Store", "async_http_client", "convert", "http_client"]

_HOMES = {
    "Action": "ctxvc.core.plan.plan",
    "Budget": "ctxvc.core.view.budget",
    "Plan": "ctxvc.core.plan.plan",
    "Session": "ctxvc.session.session",
    "Store": "ctxvc.store.store",
    "async_http_client": "ctxvc.wire.http_client",
    "convert": "ctxvc.forms.conversion",
    "http_client": "ctxvc.wire.http_client",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
