"""What the Messages API refuses in a list of messages: see `tests.messages_api`."""

from tests.messages_api.rules import canonical_problems as problems

__all__ = ["problems"]
