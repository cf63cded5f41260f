"""What can go wrong, as one small tree; each class carries the exit code the command line gives.

CtxvcError (1)          refused or failed, with a reason and mostly a hint
├── Refused (1)         the request was understood and is not allowed or not possible now
│   └── OverBudget (1)  what may not leave the prompt is more than the hard budget
├── NotFound (1)        an address, session, scope or file that is not there
├── BadName (2)         a name that cannot be used
├── BadInput (1)        a file or value that cannot be read as what it was given for
├── Damaged (3)         the store does not hold what it says it holds
└── Conflict (4)        another writer was there first
"""

from __future__ import annotations


class CtxvcError(Exception):
    """Something a person can act on: what was wrong, with what, and a hint on what to do."""

    exit_code = 1
    code = "failed"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class Refused(CtxvcError):
    code = "refused"


class OverBudget(Refused):
    code = "over_budget"


class NotFound(CtxvcError):
    code = "not_found"


class BadName(CtxvcError):
    exit_code = 2
    code = "bad_name"


class BadInput(CtxvcError):
    code = "bad_input"


class Damaged(CtxvcError):
    exit_code = 3
    code = "damaged"


class Conflict(CtxvcError):
    exit_code = 4
    code = "conflict"
