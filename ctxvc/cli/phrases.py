"""The command line's text for each phrase, and an error's message and hint in it."""

from __future__ import annotations

from ctxvc.errors import CtxvcError, render


def message(error: CtxvcError) -> str:
    return render(error.reason, COMMAND_LINE)


def hint(error: CtxvcError) -> str:
    return render(error.advice, COMMAND_LINE)


COMMAND_LINE: dict[str, str] = {
    # messages
    "run-not-begun": "`ctxvc run` did not begin session {session}: it has other tools, or none",
    "sandbox-bwrap": "--sandbox needs bubblewrap (bwrap), which is not there",
    "sandbox-home": "--sandbox hides the home folder, and HOME is {home}: no folder to hide",
    "sandbox-root": "--sandbox hides the home folder, and {root} is that or around it",
    "sandbox-bind": "--bind {path} would show the whole home folder",
    # the store and its damage
    "verify": "run `ctxvc verify`",
    "verify-all-hit": "`ctxvc verify` lists all that is hit; restore {lost} from a clone or backup",
    "verify-refs": "`ctxvc verify` tells more",
    "verify-links": "`ctxvc verify` tells all",
    "verify-gc": "nothing is lost by it; `ctxvc verify` tells whether the store is damaged",
    "repair": "`ctxvc doctor --repair`",
    "repair-head": "`ctxvc doctor --repair` gives it a new head and keeps the records that it can read",
    "repair-records": "`ctxvc doctor --repair` keeps them aside and takes them as lost; a backup may have them whole",
    "repair-aside": "look whether a backup has them whole; `ctxvc doctor --repair` takes them as lost",
    "goto-rewrites": "`ctxvc goto SCOPE` writes it anew",
    "gc-removes": "`ctxvc gc` removes it",
    "gc-merges": "nothing is lost by it, and it is tried again later; `ctxvc gc` does it now",
    "lock-wait": "wait for it, or see `ctxvc doctor`",
    "trust-setting": "take it out: {remove}; or, where it is yours, see and accept it: `ctxvc trust`",
    "trust-folder": (
        "`ctxvc trust` and finishing a purge need a data folder of yours: set HOME to a folder that you can write"
    ),
    "init": "run `ctxvc init`",
    "init-root": "run `ctxvc init` in the project's root",
    "init-anew": "if it never was one, run `ctxvc init`",
    "init-elsewhere": "run `ctxvc init` elsewhere",
    "place-taken": "`ctxvc status` if it is a store; else choose another place",
    # sessions, scopes, revisions, blocks
    "import-sessions": "`ctxvc import` brings in recorded ones",
    "list-sessions": "`ctxvc sessions` lists them",
    "other-sessions": "`ctxvc sessions` lists the others",
    "session-taken": "choose another name with --session",
    "list-blocks": "`ctxvc status --all` lists them",
    "list-scope-blocks": "`ctxvc status --all` lists this scope's",
    "newest-blocks": "`ctxvc status --all` lists them; the session's newest are B{block} and G{group}",
    "give-text": "give it with -m",
    "other-scopes": "`ctxvc scopes` lists the others",
    "goto-scope": "`ctxvc goto {scope}` switches to it",
    "own-commits": "`ctxvc log` lists its own",
    "commits-and-scopes": "`ctxvc log` lists commits; scopes of {session}: {scopes}",
    "count-commits": "see `ctxvc log`",
    "list-operations": "`ctxvc ops` lists what was done",
    "other-revisions": "`ctxvc log` lists the others",
    # the budget and the policy
    "free-budget": ("give --budget {budget} or more, unpin something, or remove human text yourself with --allow-user"),
    "overhead-budget": "give --budget {budget} or more: system prompt and tools are in every call",
    "list-knobs": "`ctxvc policies` lists the knobs and what they are",
    "name-policy": "name it again: --policy FILE.py:CLASS, in Python Session.open(…, policy=…)",
    # parts read back: the offer of a remark, and the call for the next part
    "next-path": "{address} --path {path}",
    "next-lines": "recover {address} --lines {lines}",
    "next-chars": "recover {address} --chars {chars}",
    "next-matches": "recover {address} --grep {pattern} --lines {lines}",
    "file-image": "recover {address} --file writes it, restore {address} shows it",
    "file-parts": "with {names}: recover {address} --file",
    "file-bytes": "bytes that are no UTF-8 stand as \ufffd: recover {address} --file has them",
    "recover-room": "free some room, or recover {address} --file",
    "grep-lines": "use --grep with --lines",
    "lines-or-chars": "use one of --lines and --chars",
    "fixed-text": "-F looks for it as a fixed text",
    # recordings
    "name-format": "formats: {formats}; --format NAME takes it as one of them",
    "check-format": "is it the right file, and the right --format?",
    "import-as-new": "--as-new takes the recording as another session",
    "import-edited": "it was edited since; import it under another name with --as-new",
    "export-anthropic": "--format anthropic writes it",
    "hook-folder": "`git init` makes one; -C DIR names another folder",
    # checkouts
    "make-checkout": "`ctxvc checkout` makes one",
    "take-moves": "`ctxvc checkout --take` takes the moves; to undo it: {undo}",
    "restore-group": "`ctxvc restore {block}`",
    "exact-checkout": "`ctxvc checkout` gives the exact bytes all the same",
    "changed-checkout": "take or undo it: `ctxvc checkout`",
    "foreign-worktree": (
        "if you made it with ctxvc: `ctxvc checkout SESSION/SCOPE {folder}` takes it on; if not, "
        "`{remove}` takes it off the store's list, and leaves the folder"
    ),
    # purges
    "purge-search": "`ctxvc grep` searches what is recorded",
    "purge-block": "give an address such as B17, or --text",
    "purge-name": "a name has it: `{remove}` removes a scope for good (`ctxvc goto` leaves it first)",
    "purge-secrets": "`ctxvc purge --secrets` erases them; `ctxvc help secrets` says how to allow what is none",
    "purge-looked-for": "`ctxvc help secrets` says what is looked for",
    "purge-none": "`ctxvc purge --help`",
    "purge-begun": "`ctxvc purge --finish --yes`",
    "purge-waits": (
        "open it where that was decided, or see what it is, and finish it, by `ctxvc purge --finish`; "
        "`ctxvc purge --discard` drops it"
    ),
    "purge-discard": "`ctxvc purge --discard` drops it",
    "purge-strange": "ctxvc never wrote that: `ctxvc purge --discard` drops it",
    "purge-again": "`ctxvc purge --discard` drops it; then purge again",
    # runs
    "other-model": "give another with --model",
    "cost-unknown": "leave --max-cost out and give --max-steps",
    "prompt-too-long": "go on with --resume and a --budget below what it takes, or another --model",
    "resume-session": "`--resume {session}` goes on with it",
    "question-session": "`ctxvc ask {session} QUESTION` questions it; `ctxvc run TASK` begins another",
    "export-variable": "export it first, or leave --env out",
    "install-bwrap": "on Debian: apt install bubblewrap; without --sandbox commands run as this account",
}
