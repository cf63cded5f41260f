# The hook of an event of Claude Code, read in by the command in hooks.json, which sets `event` and exits with 0: another
# status could stop the session. Most events only say that there is something new in the transcript. Where a recorder
# attends to the conversation, such an event is an empty file for it, which costs no other process. Everything else, and
# whatever has an answer, is for `ctxvc hook`. ctxvc/claude_code/spool.py has the files.

lacking() { # what is lacking: said to the person at the start, and written down once a conversation
    [ "$event" = SessionStart ] && echo "{\"systemMessage\": \"ctxvc does not record this session: $1\"}"
    [ -d "${spool%/*}" ] || return 0
    [ -n "$known" ] && [ ! -e "$spool.lacking" ] && true 2>/dev/null >"$spool.lacking" &&
        echo "$(date -u +%Y-%m-%dT%H:%M:%SZ) $event: $1" >>"${spool%/*}/log"
}

case $CLAUDE_CODE_SESSION_ID in
"" | *[!0-9A-Za-z-]*) known= ;;
*) known=yes ;;
esac
data=${XDG_DATA_HOME:-$HOME/.local/share}/ctxvc
[ -z "$XDG_DATA_HOME" ] && [ -d "$HOME/Library/Application Support/ctxvc" ] && data="$HOME/Library/Application Support/ctxvc"
spool=$data/conversations/$CLAUDE_CODE_SESSION_ID

case $event in
UserPromptSubmit | PostToolUse | PostToolUseFailure | Stop | StopFailure | SubagentStart | SubagentStop)
    if [ -n "$known" ] && [ -z "$CTXVC_LONGEST_OUTPUT$CTXVC_RECORDING" ] && [ -e "$spool/recorder" ] &&
        ! { [ -e "$spool/trouble" ] && [ -e "$spool/untold" ]; } &&
        read -r recorder 2>/dev/null <"$spool/recorder" && kill -0 "$recorder" 2>/dev/null &&
        true 2>/dev/null >"$spool/$event.$$" && # not `:`, of which an error would end the shell
        [ -e "$spool/recorder" ]; then # it looks once more after it has removed this file
        exit 0
    fi
    ;;
esac

if ! command -v ctxvc >/dev/null 2>&1; then
    lacking "the program ctxvc is not on the search path: pip install ctxvc"
elif ! ctxvc hook "$event" 2>/dev/null; then
    lacking "$(command -v ctxvc) does not run any more; install ctxvc again"
fi
exit 0
