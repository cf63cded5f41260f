"""Which environment variables an agent's commands may see, and which ctxvc itself may carry in the open.

Anyone who may inspect a process of ours sees the environment that it was started with, whatever it changed later. A
process that runs an agent is therefore started with the open variables only.
"""

from __future__ import annotations

from collections.abc import Mapping

#: Variables that any command needs.
_COMMAND = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TERM", "TZ", "TMPDIR", "TMP", "TEMP"}
    | {f"{name}_proxy" for name in ("http", "https", "ftp", "all", "no")}
    | {f"{name}_PROXY" for name in ("HTTP", "HTTPS", "FTP", "ALL", "NO")}
)
_COMMAND_PREFIX = ("LC_",)

#: Variables that our own process also needs: to restart, find its files, use a terminal, and reach the provider.
_OPEN = frozenset(
    {"PWD", "OLDPWD", "SHLVL", "_", "COLUMNS", "LINES", "COLORTERM", "TERMINFO", "TERMINFO_DIRS", "PAGER", "LESS"}
    | {"NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "EDITOR", "VISUAL", "VIRTUAL_ENV"}
    | {"LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "COVERAGE_PROCESS_START"}
)
_OPEN_PREFIX = ("XDG_", "PYTHON", "CTXVC_", "DYLD_", "__PYVENV")

#: The variable that turns recording and linking off if its value is `off`.
RECORDING = "CTXVC_RECORDING"

#: Beginnings of names of providers' keys, and of credentials for clouds and code hosts.
_CREDENTIAL_PREFIX = (
    "ANTHROPIC_", "CLAUDE_CODE_OAUTH", "OPENAI_", "GEMINI_", "MISTRAL_", "AWS_", "AZURE_", "ARM_", "GOOGLE_", "GCLOUD_",
    "CLOUDSDK_", "BOTO_", "ALIBABA_CLOUD_", "OCI_", "DIGITALOCEAN_", "HCLOUD_", "CLOUDFLARE_", "VAULT_",
)  # fmt: skip
#: Names with these endings are harmless, whatever they begin with: they state where, as whom, and with which settings.
_HARMLESS = (
    "_REGION", "_ZONE", "_PROJECT", "_PROFILE", "_USERNAME", "_CONFIG", "_CONFIG_FILE", "_ACCOUNT", "_PAGER", "_MODEL",
    "_OUTPUT", "_REGION_NAME", "_CONFIG_DIR",
)  # fmt: skip
_SECRET = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
#: Hardly a command works without these, and a credential within their values is there by chance.
_NEEDED = frozenset({"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR"})
#: A shorter value is no key, and may be part of another value by chance.
_SHORTEST_KEY = 8


def is_recording_off(env: Mapping[str, str]) -> bool:
    """Whether the person has turned recording off."""
    return env.get(RECORDING, "").lower() in ("off", "0", "no")


def for_command(name: str) -> bool:
    """Whether an agent's command sees this variable by default."""
    return name in _COMMAND or name.startswith(_COMMAND_PREFIX)


def is_open(name: str) -> bool:
    """Whether a process of ours may carry this variable where others can look."""
    return for_command(name) or name in _OPEN or name.startswith(_OPEN_PREFIX)


def is_credential(name: str) -> bool:
    """Whether the name is that of a provider's key or of a cloud's credentials."""
    return name.upper().startswith(_CREDENTIAL_PREFIX) and not name.upper().endswith(_HARMLESS)


def carried(name: str, environment: Mapping[str, str], names: Mapping[str, str]) -> str:
    """The credential among `names` whose value the variable `name` contains; empty if there is none.

    A variable that commands need, such as `PATH`, must equal the key, and the key's name must end like one.
    """
    value = environment.get(name, "")
    keys = [(key, secret) for key, secret in names.items() if is_credential(key) and len(secret) >= _SHORTEST_KEY]
    if name in _NEEDED:
        return next((key for key, secret in keys if secret == value and key.upper().endswith(_SECRET)), "")
    return next((key for key, secret in keys if secret in value), "")
