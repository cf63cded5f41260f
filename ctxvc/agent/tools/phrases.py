"""The words for a model: what each phrase is where tools with arguments are called, and no command line is there."""

from __future__ import annotations

from collections.abc import Collection

from ctxvc.errors import CtxvcError, Phrase, render

#: Of a phrase that names a tool, which: a model that does not have the tool does not get the phrase.
NEEDS = {"other-scopes": "scopes", "goto-scope": "goto", "restore-group": "restore"}


def message(error: CtxvcError) -> str:
    return render(error.reason, MODEL)


def hint(error: CtxvcError, tools: Collection[str] = ()) -> str:
    """What a model with these context tools can do, or ask a person to; empty if it can do nothing."""
    advice = error.advice
    if isinstance(advice, Phrase) and NEEDS.get(advice.key, "") not in ("", *tools):
        return ""
    return render(advice, MODEL)


#: Empty where it can do nothing.
MODEL: dict[str, str] = {
    # messages
    "unknown-vocabulary": "the model's vocabulary is unknown: each token counted is taken for {factor} of the model's",
    "run-not-begun": "session {session} was not started by a run: its tools differ, or it has none",
    "sandbox-bwrap": "a sandbox needs bubblewrap (bwrap), which is not installed",
    "sandbox-home": "a sandbox hides the home folder, but HOME is {home}, which is not a folder it can hide",
    "sandbox-root": "a sandbox hides the home folder, and {root} is or contains it",
    "sandbox-bind": "{path} in a sandbox would expose the whole home folder",
    # the store and its damage
    "verify": "a person should check the store",
    "verify-all-hit": "restore {lost} from a clone or backup",
    "verify-refs": "a person should check the store",
    "verify-links": "a person should check the store",
    "verify-gc": "nothing is lost",
    "repair": "a person should check the store",
    "repair-head": "a person should check the store",
    "repair-records": "a backup may have them intact",
    "repair-aside": "check whether a backup has them intact",
    "goto-rewrites": "a change of scope rewrites it",
    "gc-removes": "",
    "gc-merges": "nothing is lost; it is retried later",
    "lock-wait": "wait for it",
    "trust-setting": "a person should look at the store",
    "trust-folder": "",
    "init": "a person has to create one",
    "init-root": "a person has to create one",
    "init-anew": "a person should check the store",
    "init-elsewhere": "",
    "init-clone": "a person has to complete it",
    "place-taken": "",
    # sessions, scopes, revisions, blocks
    "import-sessions": "a person has to import a recorded session",
    "list-sessions": "",
    "other-sessions": "",
    "session-taken": "choose another name",
    "list-blocks": "the dashboard lists them",
    "list-scope-blocks": "the dashboard lists this scope's",
    "newest-blocks": "the dashboard lists them; the session's newest are B{block} and G{group}",
    "give-text": "pass it in the call",
    "other-scopes": "scopes lists all scopes",
    "goto-scope": "goto {scope} switches to it",
    "own-commits": "",
    "commits-and-scopes": "scopes of {session}: {scopes}",
    "count-commits": "",
    "list-operations": "",
    "other-revisions": "",
    # the budget and the policy
    "free-budget": (
        "a person has to set a budget of {budget:,} tokens or more, unpin something, or remove their own text"
    ),
    "overhead-budget": "a person has to set a budget of {budget:,} tokens or more",
    "list-knobs": "",
    "name-policy": "",
    # parts read back: what a remark offers, and the call for the next part
    "next-path": "{address} path {path}",
    "next-lines": "recover {address} lines {lines}",
    "next-chars": "recover {address} chars {chars}",
    "next-matches": "recover {address} grep {pattern} lines {lines}",
    "file-image": "restore {address} shows it",
    "file-parts": "with {names}",
    "file-bytes": "bytes that are not UTF-8 are shown as \ufffd",
    "recover-room": "make room",
    "grep-lines": "use grep with lines",
    "lines-or-chars": "use either lines or chars",
    "fixed-text": "put a backslash before each special character",
    # recordings
    "name-format": "formats: {formats}",
    "record-exactly": "",
    "check-format": "check that it is the right file and the right format",
    "import-as-new": "",
    "import-edited": "it was edited since",
    "export-anthropic": "",
    "hook-folder": "",
    # checkouts
    "make-checkout": "",
    "take-moves": "",
    "restore-group": "restore {block}",
    "exact-checkout": "",
    "changed-checkout": "",
    "foreign-worktree": "",
    # purges
    "purge-search": "",
    "purge-block": "",
    "purge-name": "",
    "purge-secrets": "",
    "purge-looked-for": "",
    "purge-none": "",
    "purge-begun": "",
    "purge-waits": "a person has to finish or discard it",
    "purge-discard": "",
    "purge-strange": "",
    "purge-again": "",
    # sharing
    "share-add": "",
    "share-add-again": "",
    "share-address": "",
    "share-again": "nothing is lost: try again later",
    "share-try": "",
    "clone-bundle": "",
    "share-theirs": "",
    "share-forget": "",
    "share-name": "",
    "share-accept": "a person has to accept the purge",
    "share-anew": "",
    "share-after-purge": "a person has to decide",
    "list-shared": "",
    "list-shared-blocks": "",
    "share-take-whole": "",
    "sign-key": "",
    "sign-tag": "",
    "sign-trust": "",
    "sign-replaced": "",
    # runs
    "other-model": "",
    "cost-unknown": "",
    "prompt-too-long": "",
    "resume-session": "",
    "question-session": "",
    "export-variable": "",
    "install-bwrap": "",
}
#: The same where a recording is asked about, which is read by another tool.
READER = MODEL | {
    "next-lines": "read_block {address} lines {lines}",
    "next-chars": "read_block {address} chars {chars}",
    "next-matches": "read_block {address} grep {pattern} lines {lines}",
}
