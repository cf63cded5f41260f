"""Who offers a model, by its name."""

from __future__ import annotations

#: How names of models begin → the provider, as models.dev names it.
_PROVIDERS = {
    "claude": "anthropic",
    "codex": "openai",
    "gpt": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
    "gemini": "google",
    "grok": "xai",
    "deepseek": "deepseek",
    "mistral": "mistral",
}


def provider_of(model: str) -> str:
    """The provider of a model, also of one that is named `provider/model`; empty if the name does not tell."""
    name = model.rpartition("/")[2].lower()
    return next((provider for start, provider in _PROVIDERS.items() if name.startswith(start)), "")
