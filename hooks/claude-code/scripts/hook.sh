#!/bin/sh
# Hands an event of Claude Code to ctxvc: `hook.sh EVENT < event.json`. Whatever happens, the session goes on.
if ! command -v ctxvc >/dev/null 2>&1; then
    [ "$1" = SessionStart ] &&
        echo "{\"systemMessage\": \"ctxvc is not installed, so this session is not recorded: pip install 'ctxvc[mcp]'\"}"
    exit 0
fi
ctxvc hook "$1" 2>/dev/null
exit 0
