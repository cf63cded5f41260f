"""What each surface says for each phrase: one table, a row a phrase."""

from __future__ import annotations

from typing import NamedTuple


class Texts(NamedTuple):
    """One phrase. A Python program reads what the command line says where it has no text of its own; a model gets
    nothing where it can do nothing."""

    command_line: str
    python: str = ""
    model: str = ""


_TABLE = {
    # messages
    "run-not-begun": Texts(
        "`ctxvc run` did not start session {session}: its tools differ, or it has none",
        python="session {session} was not started by a run: its tools differ, or it has none",
        model="session {session} was not started by a run: its tools differ, or it has none",
    ),
    "sandbox-bwrap": Texts(
        "--sandbox needs bubblewrap (bwrap), which is not installed",
        python="a sandbox needs bubblewrap (bwrap), which is not installed",
        model="a sandbox needs bubblewrap (bwrap), which is not installed",
    ),
    "sandbox-home": Texts(
        "--sandbox hides the home folder, but HOME is {home}, which is not a folder it can hide",
        python="a sandbox hides the home folder, but HOME is {home}, which is not a folder it can hide",
        model="a sandbox hides the home folder, but HOME is {home}, which is not a folder it can hide",
    ),
    "sandbox-root": Texts(
        "--sandbox hides the home folder, and {root} is or contains it",
        python="a sandbox hides the home folder, and {root} is or contains it",
        model="a sandbox hides the home folder, and {root} is or contains it",
    ),
    "sandbox-bind": Texts(
        "--bind {path} would expose the whole home folder",
        python="{path} in a sandbox would expose the whole home folder",
        model="{path} in a sandbox would expose the whole home folder",
    ),
    # the store and its damage
    "verify": Texts("run `ctxvc verify`", model="a person should check the store"),
    "verify-all-hit": Texts(
        "`ctxvc verify` lists everything affected; restore {lost} from a clone or backup",
        model="restore {lost} from a clone or backup",
    ),
    "verify-refs": Texts("`ctxvc verify` shows more", model="a person should check the store"),
    "verify-links": Texts("`ctxvc verify` shows everything", model="a person should check the store"),
    "verify-gc": Texts("nothing is lost; `ctxvc verify` checks whether the store is damaged", model="nothing is lost"),
    "repair": Texts(
        "`ctxvc doctor --repair`", python="run `ctxvc doctor --repair`", model="a person should check the store"
    ),
    "repair-head": Texts(
        "`ctxvc doctor --repair` gives it a new header and keeps the readable records",
        model="a person should check the store",
    ),
    "repair-records": Texts(
        ("`ctxvc doctor --repair` sets them aside and treats them as lost; a backup may have them intact"),
        model="a backup may have them intact",
    ),
    "repair-aside": Texts(
        "check whether a backup has them intact; `ctxvc doctor --repair` treats them as lost",
        model="check whether a backup has them intact",
    ),
    "goto-rewrites": Texts(
        "`ctxvc goto SCOPE` rewrites it", python="`goto` rewrites it", model="a change of scope rewrites it"
    ),
    "gc-removes": Texts("`ctxvc gc` removes it"),
    "gc-merges": Texts(
        "nothing is lost; it is retried later, and `ctxvc gc` does it now", model="nothing is lost; it is retried later"
    ),
    "lock-wait": Texts("wait for it, or run `ctxvc doctor`", model="wait for it"),
    "trust-setting": Texts(
        "remove it: {remove}; or, if it is yours, review and accept it: `ctxvc trust`",
        model="a person should look at the store",
    ),
    "trust-folder": Texts(
        "`ctxvc trust` and finishing a purge need a data folder of your own: set HOME to a folder you can write to"
    ),
    "init": Texts(
        "run `ctxvc init`",
        python="run `ctxvc init`, or create one with `Session.open`",
        model="a person has to create one",
    ),
    "init-root": Texts(
        "run `ctxvc init` in the project's root",
        python="run `ctxvc init` in the project's root, or give the store's path",
        model="a person has to create one",
    ),
    "init-anew": Texts("if it has never been one, run `ctxvc init`", model="a person should check the store"),
    "init-elsewhere": Texts("run `ctxvc init` elsewhere", python="create the store elsewhere"),
    "init-clone": Texts(
        "if it is a clone of a store, `ctxvc init` completes it",
        python="if it is a clone of a store, run `ctxvc init` there to complete it",
        model="a person has to complete it",
    ),
    "place-taken": Texts(
        "run `ctxvc status` if it is a store; otherwise choose another place",
        python="open it if it is a store; otherwise choose another place",
    ),
    # sessions, scopes, revisions, blocks
    "import-sessions": Texts("`ctxvc import` imports recorded ones", model="a person has to import a recorded session"),
    "list-sessions": Texts("`ctxvc sessions` lists them"),
    "other-sessions": Texts("`ctxvc sessions` lists the others"),
    "session-taken": Texts(
        "choose another name with --session", python="choose another name", model="choose another name"
    ),
    "list-blocks": Texts(
        "`ctxvc status --all` lists them", python="`dashboard` lists them", model="the dashboard lists them"
    ),
    "list-scope-blocks": Texts(
        "`ctxvc status --all` lists this scope's",
        python="`dashboard` lists this scope's",
        model="the dashboard lists this scope's",
    ),
    "newest-blocks": Texts(
        "`ctxvc status --all` lists them; the session's newest are B{block} and G{group}",
        python="`dashboard` lists them; the session's newest are B{block} and G{group}",
        model="the dashboard lists them; the session's newest are B{block} and G{group}",
    ),
    "give-text": Texts("pass it with -m", python="pass it as text", model="pass it in the call"),
    "other-scopes": Texts(
        "`ctxvc scopes` lists all scopes", python="`scopes` lists all scopes", model="scopes lists all scopes"
    ),
    "goto-scope": Texts(
        "`ctxvc goto {scope}` switches to it", python="`goto` switches to it", model="goto {scope} switches to it"
    ),
    "own-commits": Texts("`ctxvc log` lists its commits"),
    "commits-and-scopes": Texts(
        "`ctxvc log` lists commits; scopes of {session}: {scopes}", model="scopes of {session}: {scopes}"
    ),
    "count-commits": Texts("see `ctxvc log`"),
    "list-operations": Texts("`ctxvc ops` lists the operations"),
    "other-revisions": Texts("`ctxvc log` lists commits"),
    # the budget and the policy
    "free-budget": Texts(
        ("set --budget {budget} or more, unpin something, or remove human text yourself with --allow-user"),
        python=(
            "set a budget of {budget:,} tokens or more, unpin something, or remove human text "
            "yourself with `allow_user`"
        ),
        model=("a person has to set a budget of {budget:,} tokens or more, unpin something, or remove their own text"),
    ),
    "overhead-budget": Texts(
        "set --budget {budget} or more: every call includes the system prompt and the tools",
        python=(
            "set a budget of {budget:,} tokens or more, or use fewer tools or a shorter system "
            "prompt: every call includes them"
        ),
        model="a person has to set a budget of {budget:,} tokens or more",
    ),
    "unknown-vocabulary": Texts(
        (
            "unknown: until a reply reports usage, each token of our count is taken for {factor} of "
            "the model's; name a known model (`ctxvc model NAME`), or say how many one is (`ctxvc "
            "model --tokens-per-count N`)"
        ),
        python=(
            "the model's vocabulary is unknown and no reply has reported usage, so each token of our "
            "count is taken for {factor} of the model's, and prompts are kept that much smaller: "
            "append replies with their `usage`, name a model that ctxvc knows (`model=`), or say how "
            "many tokens one of ours is (`tokens_per_count=`)"
        ),
        model=("the model's vocabulary is unknown: each token counted is taken for {factor} of the model's"),
    ),
    "list-knobs": Texts("`ctxvc policies NAME` lists the knobs"),
    "name-policy": Texts(
        "name the policy again: --policy FILE.py:CLASS, in Python Session.open(…, policy=…)",
        python="name the policy again: Session.open(…, policy=…)",
    ),
    # parts read back: the offer of a remark, and the call for the next part
    "next-path": Texts("{address} --path {path}", model="{address} path {path}"),
    "next-lines": Texts("recover {address} --lines {lines}", model="recover {address} lines {lines}"),
    "next-chars": Texts("recover {address} --chars {chars}", model="recover {address} chars {chars}"),
    "next-matches": Texts(
        "recover {address} --grep {pattern} --lines {lines}", model="recover {address} grep {pattern} lines {lines}"
    ),
    "file-image": Texts(
        "recover {address} --file writes it, restore {address} shows it", model="restore {address} shows it"
    ),
    "file-parts": Texts("with {names}: recover {address} --file", model="with {names}"),
    "file-bytes": Texts(
        ("bytes that are not UTF-8 are shown as \ufffd: recover {address} --file gives them exactly"),
        model="bytes that are not UTF-8 are shown as \ufffd",
    ),
    "recover-room": Texts(
        "make room, or recover {address} --file",
        python="make room, or read its exact bytes with `recover_bytes`",
        model="make room",
    ),
    "grep-lines": Texts("use --grep with --lines", python="use grep with lines", model="use grep with lines"),
    "lines-or-chars": Texts(
        "use either --lines or --chars", python="use either lines or chars", model="use either lines or chars"
    ),
    "fixed-text": Texts(
        "put a backslash before each special character; `ctxvc grep` and `recover` also take fixed strings (-F)",
        python="put a backslash before each special character, or escape the text with `re.escape`",
        model="put a backslash before each special character",
    ),
    # recordings
    "name-format": Texts(
        "formats: {formats}; --format NAME reads it as one of them",
        python="formats: {formats}; name the one to read it as",
        model="formats: {formats}",
    ),
    "check-format": Texts(
        "check that it is the right file and the right --format",
        python="check that it is the right file and the right format",
        model="check that it is the right file and the right format",
    ),
    "import-as-new": Texts(
        "--as-new imports the recording as another session", python="import the recording as a new session"
    ),
    "import-edited": Texts(
        "it was edited since; import it under another name with --as-new",
        python="it was edited since; import it as a new session under another name",
        model="it was edited since",
    ),
    "export-anthropic": Texts(
        "--format anthropic-messages can write it", python="the format anthropic-messages can write it"
    ),
    "hook-folder": Texts(
        "run `git init`, or name another folder with -C DIR", python="run `git init`, or give another folder"
    ),
    "record-exactly": Texts(
        "`ctxvc wrap AGENT` records requests byte for byte",
        python="only requests that are recorded between an agent and its model are",
    ),
    # checkouts
    "make-checkout": Texts("`ctxvc checkout` creates one"),
    "take-moves": Texts("`ctxvc checkout --take` applies the moves; to undo them: {undo}"),
    "restore-group": Texts(
        "`ctxvc restore {block}`", python="`restore` brings it back with its group", model="restore {block}"
    ),
    "exact-checkout": Texts("`ctxvc checkout` still gives the exact bytes"),
    "changed-checkout": Texts("apply or undo it: `ctxvc checkout`"),
    "foreign-worktree": Texts(
        "if you made it with ctxvc, `ctxvc checkout SESSION/SCOPE {folder}` adopts it; if not, "
        "`{remove}` removes it from the store's list and leaves the folder"
    ),
    # purges
    "purge-search": Texts("`ctxvc grep` searches everything recorded"),
    "purge-block": Texts("give an address such as B17, or --text", python="give an address such as B17, or a text"),
    "purge-name": Texts("a name contains it: `{remove}` removes a scope for good (leave it first with `ctxvc goto`)"),
    "purge-secrets": Texts(
        "`ctxvc purge --secrets` erases them; `ctxvc help secrets` says how to allow false positives"
    ),
    "purge-looked-for": Texts(
        "`ctxvc help secrets` lists what is detected", python="`ctxvc help secrets` lists what is searched for"
    ),
    "purge-none": Texts("`ctxvc purge --help`", python="see `ctxvc purge --help`"),
    "purge-begun": Texts("`ctxvc purge --finish --yes`", python="`ctxvc purge --finish --yes` finishes it"),
    "purge-waits": Texts(
        (
            "open it where that was decided, or review and finish it with `ctxvc purge --finish`; "
            "`ctxvc purge --discard` drops it"
        ),
        model="a person has to finish or discard it",
    ),
    "purge-discard": Texts("`ctxvc purge --discard` drops it"),
    "purge-strange": Texts("ctxvc did not write that: `ctxvc purge --discard` drops it"),
    "purge-again": Texts("`ctxvc purge --discard` drops it; then purge again"),
    # sharing
    "share-add": Texts("`ctxvc remote add ADDRESS` adds one"),
    "share-add-again": Texts("if you want to send there: `ctxvc remote add {address}`"),
    "share-address": Texts("use https://…, ssh://…, git@HOST:PATH or a folder; http only to this machine"),
    "share-again": Texts("nothing is lost: run it again", model="nothing is lost: try again later"),
    "share-try": Texts("check that git reaches it: `git ls-remote {address}`"),
    "clone-bundle": Texts("`ctxvc clone FILE DIR` makes a store from it in another folder"),
    "share-theirs": Texts("nothing of it was pulled; run `ctxvc verify` in the store that pushed it"),
    "share-forget": Texts("delete that file, then `ctxvc remote add ADDRESS`"),
    "share-name": Texts("give this store a name of its own: `ctxvc remote add {address} --as NAME`"),
    "share-accept": Texts(
        "`ctxvc pull --accept-purge` erases it here too; until then nothing is pulled or pushed",
        model="a person has to accept the purge",
    ),
    "share-anew": Texts("move the store away, `ctxvc clone` the remote, and import what only the old one has"),
    "share-after-purge": Texts(
        "`ctxvc push --after-purge` replaces it, and tells the other clones", model="a person has to decide"
    ),
    "list-shared": Texts("`ctxvc sessions --remote` lists them"),
    "list-shared-blocks": Texts("`ctxvc show SESSION/SCOPE --remote` lists them"),
    "share-take-whole": Texts("`ctxvc pull --only {session}` takes the session whole"),
    "sign-key": Texts("git signs with your key: `git config --global user.signingkey …`, see `git help tag`"),
    "sign-tag": Texts("`ctxvc verify --sign TAG` makes one"),
    "sign-trust": Texts("git must know the signer's key: see `git help verify-tag`"),
    "sign-replaced": Texts("a purge replaces history; if there was none, compare with a clone"),
    # runs
    "other-model": Texts("choose another with --model", python="give another model"),
    "cost-unknown": Texts(
        "leave out --max-cost and set --max-steps instead",
        python="leave out the cost limit and limit the steps instead",
    ),
    "prompt-too-long": Texts(
        "continue with --resume and a smaller --budget, or with another --model",
        python="continue with a smaller budget, or with another model",
    ),
    "resume-session": Texts("`--resume {session}` continues it", python="choose another name, or resume it"),
    "question-session": Texts(
        "`ctxvc --session {session} continue --in run` goes on from it; `ctxvc ask {session} QUESTION` asks about it"
    ),
    "export-variable": Texts("export it first, or omit --env", python="set it first, or omit it"),
    "install-bwrap": Texts(
        "on Debian: apt install bubblewrap; without --sandbox, commands run under this account",
        python="on Debian: apt install bubblewrap; without a sandbox, commands run under this account",
    ),
}

COMMAND_LINE = {key: texts.command_line for key, texts in _TABLE.items()}
PYTHON = {key: texts.python or texts.command_line for key, texts in _TABLE.items()}
#: Where tools with arguments are called, and no command line is there; and where the tool `read_block` is.
MODEL = {key: texts.model for key, texts in _TABLE.items()}
READER = MODEL | {
    "next-lines": "read_block {address} lines {lines}",
    "next-chars": "read_block {address} chars {chars}",
    "next-matches": "read_block {address} grep {pattern} lines {lines}",
}
#: Of a phrase that names a tool, which: a model that does not have the tool does not get the phrase.
NEEDED_TOOLS = {"other-scopes": "scopes", "goto-scope": "goto", "restore-group": "restore"}
