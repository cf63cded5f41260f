"""The commands and the topics of `help`, with their summaries. Loads nothing: hooks need the names."""

from __future__ import annotations

#: Title → command → the first sentence of its help, which is written nowhere else.
SECTIONS: dict[str, dict[str, str]] = {
    "Get started": {
        "init": "Create a store in a project.",
        "import": "Import recorded sessions into the store.",
        "demo": "Show what ctxvc does, on a recorded session.",
    },
    "Record": {
        "wrap": "Run an agent and record what it sends to its model.",
        "proxy": "Forward requests to models unchanged, and record them.",
        "install": "Install hooks: a program's, the project's or the store's.",
        "watch": "Poll transcripts and record new messages.",
        "hook": "Handle an event from a Claude Code or git hook, or the status line.",
    },
    "Inspect": {
        "sessions": "List the sessions of the store, newest first.",
        "use": "Choose the session that commands use by default.",
        "status": "Show the dashboard: the contents of the prompt and their cost.",
        "context": "Show what uses the context, by kind, tool, turn or file.",
        "stats": "Show what sessions spent, by day, model, tool, file or person.",
        "policies": "List the policies: who decides, and what the model sees.",
        "log": "List the commits of a scope, newest first.",
        "ops": "List a scope's operations: who changed what, and its effect.",
        "show": "Show a block, a group or a commit.",
        "diff": "Show what entered and left the prompt between two revisions.",
        "prompt": "Show the prompt as it would be sent after a revision.",
        "grep": "Search all blocks, and show where each match is now.",
        "bisect": "Find the commit at which something entered or left the prompt.",
        "blame": "Show what happened to a block or group, who did it and why.",
        "why": "Show the conversation behind a commit, a file or a line of code.",
        "report": "Write one page that shows what the model saw, what left, and why.",
        "ui": "Show the page of `report` for all sessions, live, in the browser.",
    },
    "Edit the context": {
        "archive": "Take blocks out of the prompt, leaving a stub with their address.",
        "recover": "Read a block that left the prompt, without putting it back.",
        "restore": "Put blocks back into the prompt, each in its place.",
        "delete": "Remove blocks from the prompt for good; a tombstone says why.",
        "pin": "Keep blocks in the prompt, whatever a policy or an agent proposes.",
        "unpin": "Unpin blocks, so that they may leave the prompt again.",
        "undo": "Undo the last changes to the prompt in this scope.",
        "redo": "Redo what `undo` took back.",
        "plan": "Show what a policy would take out of the prompt, and why.",
        "compact": "Make room now: clear old results, and summarise if necessary.",
        "model": "Show the session's model and thresholds, or change the model.",
        "note": "Record a finding: a commit, and a block that stays in the prompt.",
        "notes": "List a scope's notes, oldest first, including inherited ones.",
        "scope": "Create a scope and switch to it.",
        "goto": "Switch to another scope, with an arrival note there.",
        "scopes": "List the scopes; `*` marks the current one.",
    },
    "Agent": {
        "run": "Run a small agent on a task in this folder, within a budget.",
        "ask": "Ask recorded sessions a question; citations are checked.",
        "replay": "Replay recorded sessions under policies and budgets, and compare.",
    },
    "Export": {
        "continue": "Continue a session in another agent.",
        "export": "Write a session in another format, or all of them as a table.",
        "sql": "Ask the table of all sessions in SQL.",
        "checkout": "Write a scope's blocks into a folder as files.",
        "mcp": "Serve the store to MCP clients, over stdin and stdout or over HTTP.",
    },
    "Share": {
        "remote": "Add a git remote to share sessions through, or list them.",
        "push": "Push sessions to a remote, onto a ref of this store's own.",
        "pull": "Fetch the sessions that other clones have pushed.",
        "clone": "Create a store from a remote's sessions, or from a bundle.",
        "unshare": "Take a session back from a remote.",
    },
    "Maintain": {
        "verify": "Check that every block is as recorded.",
        "gc": "Repack the store; remove old sessions if you ask for it.",
        "purge": "Erase blocks, a text or all secrets from the whole history.",
        "trust": "Accept the git settings of a store from elsewhere.",
        "doctor": "Check the installation and suggest fixes.",
        "completion": "Print the completion script for a shell.",
        "help": "Explain a topic or a command, offline.",
    },
}
COMMANDS = {name: summary for section in SECTIONS.values() for name, summary in section.items()}

#: The module of a command that shares one with others, where its name is not the command's.
MODULES = {
    **dict.fromkeys(("archive", "restore", "delete", "pin", "unpin", "undo", "redo"), "verbs"), "goto": "scope",
}  # fmt: skip

#: Topic → what `ctxvc help TOPIC` is about.
TOPICS = {
    "revisions": "how commits, blocks and sessions are named",
    "budgets": "windows, budgets and the thresholds below them",
    "policies": "what leaves the prompt, and who decides",
    "choose-a-policy": "which policy and budget suit your own sessions",
    "dashboard": "the columns of `status`",
    "config": "your configuration file, and a project's",
    "environment": "the variables that are read",
    "exit-codes": "what each exit code means",
    "json": "the answers of --json",
    "secrets": "what counts as a secret, and what happens to one",
    "providers": "the APIs of models: addresses and keys",
    "run-safely": "what an agent's commands may see and do",
    "connect-over-mcp": "the configuration of an MCP client",
    "glossary": "what the words mean",
}
#: The topics that are pages of the documents: their places in `docs`. In a wheel they are with the other topics.
PAGES = {
    "policies": "policies.md",
    "choose-a-policy": "how-to/choose-a-policy.md",
    "dashboard": "dashboard.md",
    "secrets": "secrets.md",
    "run-safely": "how-to/run-safely.md",
    "connect-over-mcp": "how-to/connect-over-mcp.md",
    "glossary": "glossary.md",
}

#: What other programs call a command → ours.
ELSEWHERE = {
    "branch": "scope", "commit": "note", "find": "grep", "history": "log", "list": "sessions", "ls": "sessions",
    "remove": "archive", "revert": "undo", "rm": "archive", "search": "grep", "switch": "goto", "usage": "stats",
}  # fmt: skip
