"""OpenAI's two APIs on this machine's loopback, with a judge of what they take: for real clients, without a model."""

from tests.openai_api.judge import chat_problem, responses_problem
from tests.openai_api.server import OpenAIApi, serve

__all__ = ["OpenAIApi", "chat_problem", "responses_problem", "serve"]
