"""A run of mini-SWE-agent: a document with the messages of Chat Completions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from ctxvc.core.prompt import formats
from ctxvc.exporters.conversation import Conversation
from ctxvc.exporters.native.content import arriving
from ctxvc.exporters.native.session import NativeFormat, NativeSession, Setting, model, session_id
from ctxvc.forms.chat_writer import written
from ctxvc.importers.mini_swe_agent import FORMAT

_AGENT = "mini-swe-agent"
#: The release whose form is written.
_VERSION = "2.4.6"


def write(conversation: Conversation, setting: Setting) -> NativeSession:
    """The run, in which every text of the user counts as a person's."""
    content = arriving(conversation, setting, _AGENT, FORMAT)
    identifier = str(session_id(conversation, setting, _AGENT))
    request = written(formats.Prompt(pieces=content.pieces, system=conversation.system))
    calls = {piece.call: piece for piece in content.pieces if piece.kind == "tool_use"}
    messages = []
    for message in request.value["messages"]:
        note = content.note(calls[one["id"]] for one in message.get("tool_calls", ()))
        messages.append({**message, "extra": note} if note else message)
    provider, name = model(conversation, setting)
    info = {
        "exit_status": "",
        "submission": "",
        "mini_version": _VERSION,
        "config": {
            "model": {"model_name": f"{provider}/{name}"},
            "environment": {"cwd": str(setting.folder)},
        },
    }
    document = {"info": info, "messages": messages, "trajectory_format": "mini-swe-agent-1.1"}
    losses = tuple(loss for loss in content.losses if loss.path != "system")
    return NativeSession(
        id=identifier,
        files={PurePosixPath(f"{identifier}.traj.json"): formats.dumps(document)},
        losses=(*losses, *content.unattributed(), *request.losses),
    )


def _folder(_: Path, home: Path, env: Mapping[str, str]) -> Path:
    """The default folder for runs."""
    return Path(env.get("MSWEA_GLOBAL_CONFIG_DIR") or home / ".config" / "mini-swe-agent")


NATIVE = NativeFormat(agent=_AGENT, format=FORMAT, write=write, folder=_folder, resume="")
