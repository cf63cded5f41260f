"""What can go wrong, as one small tree; each class carries the exit code the command line gives.

CtxvcError (1)          refused or failed, with a reason and mostly a hint
├── Refused (1)         the request was understood and is not allowed or not possible now
│   └── OverBudget (1)  what may not leave the prompt is more than the hard budget
├── Unreachable (1)     another machine cannot be reached, or the connection broke; again may help
├── NotFound (1)        an address, session, scope or file that is not there
├── BadName (2)         a name that cannot be used
├── BadInput (1)        a file or value that cannot be read as what it was given for
│   ├── BadPolicy (1)   a person's own policy fails, or asks for what no policy may do
│   └── BadSettings (2) a file of settings that cannot be used
├── Damaged (3)         the store does not hold what it says it holds
└── Conflict (4)        another writer was there first

A text that would name a command, an option or an argument is a `Phrase`: each surface has its own words for it.
"""

from __future__ import annotations

from ctxvc.phrases import PYTHON


class Phrase:
    """A text that each surface says in its own words: the key of a table, and what goes into the text there."""

    __slots__ = ("arguments", "key")

    def __init__(self, key: str, **arguments: str | int | Phrase) -> None:
        self.key = key
        self.arguments = arguments

    def __str__(self) -> str:
        return render(self, PYTHON)

    def __repr__(self) -> str:
        arguments = "".join(f", {name}={value!r}" for name, value in self.arguments.items())
        return f"Phrase({self.key!r}{arguments})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Phrase) and (self.key, self.arguments) == (other.key, other.arguments)

    def __hash__(self) -> int:
        return hash(self.key)


def render(text: str | Phrase, table: dict[str, str]) -> str:
    """The text in the words of a surface, whose table has an entry for each key. Plain text is the same for all."""
    if not isinstance(text, Phrase):
        return text
    rendered = {
        name: render(value, table) if isinstance(value, Phrase) else value for name, value in text.arguments.items()
    }
    return table[text.key].format_map(rendered)


class UnknownVocabularyWarning(UserWarning):
    """A model's tokens are a guess, and no reply has reported usage to learn from; the prompts are smaller for it."""

    def __init__(self, remark: Phrase) -> None:
        super().__init__(str(remark))
        self.remark = remark


class CtxvcError(Exception):
    """Something a person can act on: what was wrong, with what, and a hint on what to do."""

    exit_code = 1
    code = "failed"

    def __init__(self, message: str | Phrase, *, hint: str | Phrase = "") -> None:
        super().__init__(str(message))
        self.reason = message
        self.advice = hint

    @property
    def hint(self) -> str:
        """The advice in the words of a Python program; a surface renders `advice` by its own table."""
        return str(self.advice)


def reason_of(error: BaseException) -> str:
    """What an exception says to a person: a system's error by its file and in words, a bug with its class."""
    match error:
        case OSError(strerror=str(text)):
            return f"{error.filename}: {text}" if error.filename else text
        case CtxvcError() | OSError() | ValueError():
            return str(error)
    return f"{type(error).__name__}: {error}"


class Refused(CtxvcError):
    code = "refused"


class OverBudget(Refused):
    code = "over_budget"


class Unreachable(CtxvcError):
    code = "unreachable"


class NotFound(CtxvcError):
    code = "not_found"


class BadName(CtxvcError):
    exit_code = 2
    code = "bad_name"


class BadInput(CtxvcError):
    code = "bad_input"


class BadPolicy(BadInput):
    """Its code is that of `BadInput`, as it always was."""


class BadSettings(BadInput):
    """A file of settings that cannot be used. Its code is that of `BadInput`; it counts as wrong usage."""

    exit_code = 2


class Damaged(CtxvcError):
    exit_code = 3
    code = "damaged"


class Conflict(CtxvcError):
    exit_code = 4
    code = "conflict"
