# Asks ctxvc for the prompt after a compaction of Claude Code: the event is on stdin, the answer goes to stdout.
# Without ctxvc there is no answer, and Claude Code compacts by itself.
command -v ctxvc >/dev/null 2>&1 || exit 0
ctxvc hook SessionCompact 2>/dev/null
exit 0
