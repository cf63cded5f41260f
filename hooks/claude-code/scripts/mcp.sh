#!/bin/sh
# Serves the store's tools to Claude Code. Where they cannot be, it says why and ends; recording goes on without them.
if ! command -v ctxvc >/dev/null 2>&1; then
    echo "ctxvc is not installed: pip install ctxvc" >&2
    exit 1
fi
exec ctxvc mcp
