"""The command line's text for each phrase, and an error's message and hint in it."""

from __future__ import annotations

from ctxvc.errors import CtxvcError, render


def message(error: CtxvcError) -> str:
    return render(error.reason, COMMAND_LINE)


def hint(error: CtxvcError) -> str:
    return render(error.advice, COMMAND_LINE)


COMMAND_LINE: dict[str, str] = {
    # messages
    "run-not-begun": "`ctxvc run` did not start session {session}: its tools differ, or it has none",
    "sandbox-bwrap": "--sandbox needs bubblewrap (bwrap), which is not installed",
    "sandbox-home": "--sandbox hides the home folder, but HOME is {home}, which is not a folder it can hide",
    "sandbox-root": "--sandbox hides the home folder, and {root} is or contains it",
    "sandbox-bind": "--bind {path} would expose the whole home folder",
    # the store and its damage
    "verify": "run `ctxvc verify`",
    "verify-all-hit": "`ctxvc verify` lists everything affected; restore {lost} from a clone or backup",
    "verify-refs": "`ctxvc verify` shows more",
    "verify-links": "`ctxvc verify` shows everything",
    "verify-gc": "nothing is lost; `ctxvc verify` checks whether the store is damaged",
    "repair": "`ctxvc doctor --repair`",
    "repair-head": "`ctxvc doctor --repair` gives it a new header and keeps the readable records",
    "repair-records": "`ctxvc doctor --repair` sets them aside and treats them as lost; a backup may have them intact",
    "repair-aside": "check whether a backup has them intact; `ctxvc doctor --repair` treats them as lost",
    "goto-rewrites": "`ctxvc goto SCOPE` rewrites it",
    "gc-removes": "`ctxvc gc` removes it",
    "gc-merges": "nothing is lost; it is retried later, and `ctxvc gc` does it now",
    "lock-wait": "wait for it, or run `ctxvc doctor`",
    "trust-setting": "remove it: {remove}; or, if it is yours, review and accept it: `ctxvc trust`",
    "trust-folder": (
        "`ctxvc trust` and finishing a purge need a data folder of your own: set HOME to a folder you can write to"
    ),
    "init": "run `ctxvc init`",
    "init-root": "run `ctxvc init` in the project's root",
    "init-anew": "if it has never been one, run `ctxvc init`",
    "init-elsewhere": "run `ctxvc init` elsewhere",
    "init-clone": "if it is a clone of a store, `ctxvc init` completes it",
    "place-taken": "run `ctxvc status` if it is a store; otherwise choose another place",
    # sessions, scopes, revisions, blocks
    "import-sessions": "`ctxvc import` imports recorded ones",
    "list-sessions": "`ctxvc sessions` lists them",
    "other-sessions": "`ctxvc sessions` lists the others",
    "session-taken": "choose another name with --session",
    "list-blocks": "`ctxvc status --all` lists them",
    "list-scope-blocks": "`ctxvc status --all` lists this scope's",
    "newest-blocks": "`ctxvc status --all` lists them; the session's newest are B{block} and G{group}",
    "give-text": "pass it with -m",
    "other-scopes": "`ctxvc scopes` lists all scopes",
    "goto-scope": "`ctxvc goto {scope}` switches to it",
    "own-commits": "`ctxvc log` lists its commits",
    "commits-and-scopes": "`ctxvc log` lists commits; scopes of {session}: {scopes}",
    "count-commits": "see `ctxvc log`",
    "list-operations": "`ctxvc ops` lists the operations",
    "other-revisions": "`ctxvc log` lists commits",
    # the budget and the policy
    "free-budget": ("set --budget {budget} or more, unpin something, or remove human text yourself with --allow-user"),
    "overhead-budget": "set --budget {budget} or more: every call includes the system prompt and the tools",
    "unknown-vocabulary": (
        "unknown: until a reply reports usage, each token of our count is taken for {factor} of the model's; "
        "name a known model (`ctxvc model NAME`), or say how many one is (`ctxvc model --tokens-per-count N`)"
    ),
    "list-knobs": "`ctxvc policies NAME` lists the knobs",
    "name-policy": "name the policy again: --policy FILE.py:CLASS, in Python Session.open(…, policy=…)",
    # parts read back: the offer of a remark, and the call for the next part
    "next-path": "{address} --path {path}",
    "next-lines": "recover {address} --lines {lines}",
    "next-chars": "recover {address} --chars {chars}",
    "next-matches": "recover {address} --grep {pattern} --lines {lines}",
    "file-image": "recover {address} --file writes it, restore {address} shows it",
    "file-parts": "with {names}: recover {address} --file",
    "file-bytes": "bytes that are not UTF-8 are shown as \ufffd: recover {address} --file gives them exactly",
    "recover-room": "make room, or recover {address} --file",
    "grep-lines": "use --grep with --lines",
    "lines-or-chars": "use either --lines or --chars",
    "fixed-text": "-F searches for it as a fixed string",
    # recordings
    "name-format": "formats: {formats}; --format NAME reads it as one of them",
    "check-format": "check that it is the right file and the right --format",
    "import-as-new": "--as-new imports the recording as another session",
    "import-edited": "it was edited since; import it under another name with --as-new",
    "export-anthropic": "--format anthropic-messages can write it",
    "hook-folder": "run `git init`, or name another folder with -C DIR",
    "record-exactly": "`ctxvc wrap AGENT` records requests byte for byte",
    # checkouts
    "make-checkout": "`ctxvc checkout` creates one",
    "take-moves": "`ctxvc checkout --take` applies the moves; to undo them: {undo}",
    "restore-group": "`ctxvc restore {block}`",
    "exact-checkout": "`ctxvc checkout` still gives the exact bytes",
    "changed-checkout": "apply or undo it: `ctxvc checkout`",
    "foreign-worktree": (
        "if you made it with ctxvc, `ctxvc checkout SESSION/SCOPE {folder}` adopts it; if not, `{remove}` removes "
        "it from the store's list and leaves the folder"
    ),
    # purges
    "purge-search": "`ctxvc grep` searches everything recorded",
    "purge-block": "give an address such as B17, or --text",
    "purge-name": "a name contains it: `{remove}` removes a scope for good (leave it first with `ctxvc goto`)",
    "purge-secrets": "`ctxvc purge --secrets` erases them; `ctxvc help secrets` says how to allow false positives",
    "purge-looked-for": "`ctxvc help secrets` lists what is detected",
    "purge-none": "`ctxvc purge --help`",
    "purge-begun": "`ctxvc purge --finish --yes`",
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
    "other-model": "choose another with --model",
    "cost-unknown": "leave out --max-cost and set --max-steps instead",
    "prompt-too-long": "continue with --resume and a smaller --budget, or with another --model",
    "resume-session": "`--resume {session}` continues it",
    "question-session": "`ctxvc ask {session} QUESTION` asks it a question; `ctxvc run TASK` starts another",
    "export-variable": "export it first, or omit --env",
    "install-bwrap": "on Debian: apt install bubblewrap; without --sandbox, commands run under this account",
}
