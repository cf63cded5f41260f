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


#: A Python program's words. What the package has no function for is named as the command.
PYTHON: dict[str, str] = {
    # messages
    "run-not-begun": "session {session} was not started by a run: its tools differ, or it has none",
    "sandbox-bwrap": "a sandbox needs bubblewrap (bwrap), which is not installed",
    "sandbox-home": "a sandbox hides the home folder, but HOME is {home}, which is not a folder it can hide",
    "sandbox-root": "a sandbox hides the home folder, and {root} is or contains it",
    "sandbox-bind": "{path} in a sandbox would expose the whole home folder",
    # the store and its damage
    "verify": "run `ctxvc verify`",
    "verify-all-hit": "`ctxvc verify` lists everything affected; restore {lost} from a clone or backup",
    "verify-refs": "`ctxvc verify` shows more",
    "verify-links": "`ctxvc verify` shows everything",
    "verify-gc": "nothing is lost; `ctxvc verify` checks whether the store is damaged",
    "repair": "run `ctxvc doctor --repair`",
    "repair-head": "`ctxvc doctor --repair` gives it a new header and keeps the readable records",
    "repair-records": "`ctxvc doctor --repair` sets them aside and treats them as lost; a backup may have them intact",
    "repair-aside": "check whether a backup has them intact; `ctxvc doctor --repair` treats them as lost",
    "goto-rewrites": "`goto` rewrites it",
    "gc-removes": "`ctxvc gc` removes it",
    "gc-merges": "nothing is lost; it is retried later, and `ctxvc gc` does it now",
    "lock-wait": "wait for it, or run `ctxvc doctor`",
    "trust-setting": "remove it: {remove}; or, if it is yours, review and accept it: `ctxvc trust`",
    "trust-folder": (
        "`ctxvc trust` and finishing a purge need a data folder of your own: set HOME to a folder you can write to"
    ),
    "init": "run `ctxvc init`, or create one with `Session.open`",
    "init-root": "run `ctxvc init` in the project's root, or give the store's path",
    "init-anew": "if it has never been one, run `ctxvc init`",
    "init-elsewhere": "create the store elsewhere",
    "init-clone": "if it is a clone of a store, run `ctxvc init` there to complete it",
    "place-taken": "open it if it is a store; otherwise choose another place",
    # sessions, scopes, revisions, blocks
    "import-sessions": "`ctxvc import` imports recorded ones",
    "list-sessions": "`ctxvc sessions` lists them",
    "other-sessions": "`ctxvc sessions` lists the others",
    "session-taken": "choose another name",
    "list-blocks": "`dashboard` lists them",
    "list-scope-blocks": "`dashboard` lists this scope's",
    "newest-blocks": "`dashboard` lists them; the session's newest are B{block} and G{group}",
    "give-text": "pass it as text",
    "other-scopes": "`scopes` lists all scopes",
    "goto-scope": "`goto` switches to it",
    "own-commits": "`ctxvc log` lists its commits",
    "commits-and-scopes": "`ctxvc log` lists commits; scopes of {session}: {scopes}",
    "count-commits": "see `ctxvc log`",
    "list-operations": "`ctxvc ops` lists the operations",
    "other-revisions": "`ctxvc log` lists commits",
    # the budget and the policy
    "free-budget": (
        "set a budget of {budget:,} tokens or more, unpin something, or remove human text yourself with `allow_user`"
    ),
    "overhead-budget": (
        "set a budget of {budget:,} tokens or more, or use fewer tools or a shorter system prompt: every call "
        "includes them"
    ),
    "unknown-vocabulary": (
        "the model's vocabulary is unknown and no reply has reported usage, so each token of our count is taken for "
        "{factor} of the model's, and prompts are kept that much smaller: append replies with their `usage`, name a "
        "model that ctxvc knows (`model=`), or say how many tokens one of ours is (`tokens_per_count=`)"
    ),
    "list-knobs": "`ctxvc policies NAME` lists the knobs",
    "name-policy": "name the policy again: Session.open(…, policy=…)",
    # parts read back: what a remark offers, and the call for the next part
    "next-path": "{address} --path {path}",
    "next-lines": "recover {address} --lines {lines}",
    "next-chars": "recover {address} --chars {chars}",
    "next-matches": "recover {address} --grep {pattern} --lines {lines}",
    "file-image": "recover {address} --file writes it, restore {address} shows it",
    "file-parts": "with {names}: recover {address} --file",
    "file-bytes": "bytes that are not UTF-8 are shown as \ufffd: recover {address} --file gives them exactly",
    "recover-room": "make room, or read its exact bytes with `recover_bytes`",
    "grep-lines": "use grep with lines",
    "lines-or-chars": "use either lines or chars",
    "fixed-text": "put a backslash before each special character, or escape the text with `re.escape`",
    # recordings
    "name-format": "formats: {formats}; name the one to read it as",
    "record-exactly": "only requests that are recorded between an agent and its model are",
    "check-format": "check that it is the right file and the right format",
    "import-as-new": "import the recording as a new session",
    "import-edited": "it was edited since; import it as a new session under another name",
    "export-anthropic": "the format anthropic-messages can write it",
    "hook-folder": "run `git init`, or give another folder",
    # checkouts
    "make-checkout": "`ctxvc checkout` creates one",
    "take-moves": "`ctxvc checkout --take` applies the moves; to undo them: {undo}",
    "restore-group": "`restore` brings it back with its group",
    "exact-checkout": "`ctxvc checkout` still gives the exact bytes",
    "changed-checkout": "apply or undo it: `ctxvc checkout`",
    "foreign-worktree": (
        "if you made it with ctxvc, `ctxvc checkout SESSION/SCOPE {folder}` adopts it; if not, `{remove}` removes "
        "it from the store's list and leaves the folder"
    ),
    # purges
    "purge-search": "`ctxvc grep` searches everything recorded",
    "purge-block": "give an address such as B17, or a text",
    "purge-name": "a name contains it: `{remove}` removes a scope for good (leave it first with `ctxvc goto`)",
    "purge-secrets": "`ctxvc purge --secrets` erases them; `ctxvc help secrets` says how to allow false positives",
    "purge-looked-for": "`ctxvc help secrets` lists what is searched for",
    "purge-none": "see `ctxvc purge --help`",
    "purge-begun": "`ctxvc purge --finish --yes` finishes it",
    "purge-waits": (
        "open it where that was decided, or review and finish it with `ctxvc purge --finish`; `ctxvc purge "
        "--discard` drops it"
    ),
    "purge-discard": "`ctxvc purge --discard` drops it",
    "purge-strange": "ctxvc did not write that: `ctxvc purge --discard` drops it",
    "purge-again": "`ctxvc purge --discard` drops it; then purge again",
    # sharing
    "share-add": "`ctxvc remote add ADDRESS` adds one",
    "share-add-again": "if you want to send there: `ctxvc remote add {address}`",
    "share-address": "use https://…, ssh://…, git@HOST:PATH or a folder; http only to this machine",
    "share-again": "nothing is lost: run it again",
    "share-try": "check that git reaches it: `git ls-remote {address}`",
    "clone-bundle": "`ctxvc clone FILE DIR` makes a store from it in another folder",
    "share-theirs": "nothing of it was pulled; run `ctxvc verify` in the store that pushed it",
    "share-forget": "delete that file, then `ctxvc remote add ADDRESS`",
    "share-name": "if this is a copy of that store, give it a name of its own: `ctxvc remote add {address} --as NAME`",
    "share-accept": "`ctxvc pull --accept-purge` erases it here too; until then nothing is pulled or pushed",
    "share-anew": "move the store away, `ctxvc clone` the remote, and import what only the old one has",
    "share-after-purge": "`ctxvc push --after-purge` replaces it, and tells the other clones",
    "list-shared": "`ctxvc sessions --remote` lists them",
    "list-shared-blocks": "`ctxvc show SESSION/SCOPE --remote` lists them",
    "share-take-whole": "`ctxvc pull --only {session}` takes the session whole",
    "sign-key": "git signs with your key: `git config --global user.signingkey …`, see `git help tag`",
    "sign-tag": "`ctxvc verify --sign TAG` makes one",
    "sign-trust": "git must know the signer's key: see `git help verify-tag`",
    "sign-replaced": "a purge replaces history; if there was none, compare with a clone",
    # runs
    "other-model": "give another model",
    "cost-unknown": "leave out the cost limit and limit the steps instead",
    "prompt-too-long": "continue with a smaller budget, or with another model",
    "resume-session": "choose another name, or resume it",
    "question-session": "`ctxvc ask {session} QUESTION` asks it a question; `ctxvc run TASK` starts another",
    "export-variable": "set it first, or omit it",
    "install-bwrap": "on Debian: apt install bubblewrap; without a sandbox, commands run under this account",
}
