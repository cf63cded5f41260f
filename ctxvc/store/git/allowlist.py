"""The harmless settings of a git repository: those that ctxvc writes, and those that run and redirect nothing.

All others are refused, including those of future versions of git.
"""

from __future__ import annotations

import re

from ctxvc.store.git.config_parser import Setting

#: Set by `ctxvc install git-hooks`, with exactly this value. git runs it in the person's own `git diff`, not in ours.
TEXTCONV = "diff.ctxvc.textconv"
TEXTCONVS = frozenset({'ctxvc() { python3 -I -m json.tool --no-ensure-ascii "$1" 2>/dev/null || cat "$1"; }; ctxvc'})
#: Its former values, which import a `json` from the current folder. A store with one opens; `install` renews it.
OLD_TEXTCONVS = frozenset({'ctxvc() { python3 -m json.tool --no-ensure-ascii "$1" 2>/dev/null || cat "$1"; }; ctxvc'})

#: Patterns as text: each is compiled only if a store has such a setting, and most stores have few.
_ANY = r"[^\x00-\x1f\x7f]*"
_SWITCH = r"(?i)true|false|yes|no|on|off|[0-9]*"
_NUMBER = r"(?i)-?[0-9]+[kmg]?|true|false|yes|no|on|off"
_WORD = r"[A-Za-z0-9,._ -]*"
_TIME = r"[A-Za-z0-9.:/ -]*"
_NAME = r"\.|[A-Za-z0-9_][A-Za-z0-9._/-]*"
_REFSPEC = r"[+^]?[A-Za-z0-9_@*][^\x00-\x20\x7f~?\[\\]*"
_FLAGS = r"--tags|--no-tags"


def _keys(section: str, names: str) -> list[str]:
    return [f"{section}.{name}" for name in names.split()]


_VALUES: dict[str, str] = {
    **dict.fromkeys(
        _keys(
            "core",
            "bare filemode symlinks ignorecase precomposeunicode logallrefupdates protecthfs protectntfs longpaths "
            "sparsecheckout sparsecheckoutcone untrackedcache preloadindex multipackindex commitgraph trustctime "
            "quotepath fsyncobjectfiles splitindex warnambiguousrefs",
        ),
        rf"{_SWITCH}|always|keep",
    ),
    **dict.fromkeys(
        _keys(
            "core",
            "repositoryformatversion compression loosecompression bigfilethreshold packedgitlimit packedgitwindowsize "
            "deltabasecachelimit abbrev",
        ),
        _NUMBER,
    ),
    **dict.fromkeys(
        _keys("core", "autocrlf eol safecrlf fsync fsyncmethod sharedrepository checkstat hidedotfiles"), _WORD
    ),
    **dict.fromkeys(
        _keys(
            "gc",
            "auto autopacklimit autodetach bigpackthreshold packrefs writecommitgraph aggressivedepth aggressivewindow "
            "cruftpacks",
        ),
        rf"{_NUMBER}|notbare",
    ),
    **dict.fromkeys(
        _keys("gc", "pruneexpire worktreepruneexpire reflogexpire reflogexpireunreachable logexpiry"), _TIME
    ),
    **dict.fromkeys(
        _keys(
            "pack",
            "threads windowmemory window depth compression deltacachesize deltacachelimit indexversion packsizelimit "
            "usesparse usebitmaps usebitmapboundarytraversal writebitmaphashcache writereverseindex readreverseindex "
            "allowpackreuse writebitmaplookuptable",
        ),
        rf"{_NUMBER}|single|multi",
    ),
    **dict.fromkeys(
        _keys("repack", "usedeltabaseoffset packkeptobjects writebitmaps updateserverinfo usedeltaislands"), _SWITCH
    ),
    **dict.fromkeys(_keys("index", "version threads sparse"), _NUMBER),
    **dict.fromkeys(
        _keys("receive", "denynonfastforwards denydeletes fsckobjects autogc unpacklimit updateserverinfo"), _NUMBER
    ),
    **dict.fromkeys(_keys("receive", "denycurrentbranch denydeletecurrent"), _WORD),
    **dict.fromkeys(_keys("transfer", "fsckobjects unpacklimit"), _NUMBER),
    **dict.fromkeys(_keys("fetch", "fsckobjects prune prunetags unpacklimit"), _NUMBER),
    **dict.fromkeys(_keys("push", "default autosetupremote followtags"), _WORD),
    **dict.fromkeys(_keys("pull", "rebase ff"), _WORD),
    **dict.fromkeys(_keys("diff", "algorithm renames renamelimit"), _WORD),
    **dict.fromkeys(_keys("user", "name email useconfigonly"), _ANY),
    **dict.fromkeys(_keys("author", "name email"), _ANY),
    **dict.fromkeys(_keys("committer", "name email"), _ANY),
    "maintenance.auto": _SWITCH,
    "maintenance.strategy": _WORD,
    "init.defaultbranch": _NAME,
    "remote.pushdefault": _NAME,
    "color.ui": _WORD,
    "fastimport.unpacklimit": _NUMBER,
    "extensions.worktreeconfig": _SWITCH,
}

#: The same for keys with a name in the middle, such as `branch.main.merge`.
_NAMED: dict[tuple[str, str], str] = {
    ("branch", "remote"): _NAME,
    ("branch", "pushremote"): _NAME,
    ("branch", "merge"): _REFSPEC,
    ("branch", "rebase"): _WORD,
    ("branch", "description"): r"[^\x00-\x08\x0b-\x1f\x7f]*",
    ("remote", "fetch"): _REFSPEC,
    ("remote", "push"): _REFSPEC,
    ("remote", "tagopt"): _FLAGS,
    ("remote", "prune"): _SWITCH,
    ("remote", "prunetags"): _SWITCH,
    ("remote", "mirror"): rf"{_SWITCH}|fetch|push",
    ("remote", "skipdefaultupdate"): _SWITCH,
    ("remote", "skipfetchall"): _SWITCH,
}
_ADDRESSES = frozenset({"url", "pushurl"})

#: Settings that cannot be accepted: they include files that this check does not see, or change the kind of the store.
_NEVER = re.compile(
    r"(?i)(include|includeif)\..*|extensions\..*|core\.worktree|remote\..*\.(promisor|partialclonefilter)", re.DOTALL
)
_SCHEMES = frozenset({"https", "ssh", "file", "git"})
#: Hosts for which http is allowed too: nothing sent to them leaves the machine.
_LOOPBACK = re.compile(r"(localhost|127\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}|\[::1\])(:[0-9]{1,5})?")


def is_harmless(setting: Setting) -> bool:
    """Whether the setting can neither run anything nor redirect git."""
    key, value = setting.key, "true" if setting.value is None else setting.value
    section, _, rest = key.partition(".")
    name, _, last = rest.rpartition(".")
    if section == "ctxvc" and not name:
        return re.fullmatch(_ANY, value) is not None
    if key == TEXTCONV:
        return value in TEXTCONVS | OLD_TEXTCONVS
    if not name:
        pattern = _VALUES.get(key)
        return pattern is not None and re.fullmatch(pattern, value) is not None
    if section == "remote" and last in _ADDRESSES:
        return is_address(value) and not name.startswith("-")
    pattern = _NAMED.get((section, last))
    return pattern is not None and re.fullmatch(pattern, value) is not None


def is_acceptable(setting: Setting) -> bool:
    """Whether a person who has seen the setting may accept it."""
    return not _NEVER.fullmatch(setting.key)


def is_address(value: str) -> bool:
    """Whether git reaches the address by https, ssh, file or its own protocol, and by no program that it names.

    http is allowed only for this machine.
    """
    if not value or value.startswith("-") or not re.fullmatch(_ANY, value):
        return False
    scheme, colons, rest = value.partition("://")
    if colons and re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        host = rest.partition("/")[0].rpartition("@")[2]
        return (scheme in _SCHEMES and not host.startswith("-")) or (scheme == "http" and is_loopback(host))
    if re.match(r"[A-Za-z0-9_+.-]*::", value):
        return False
    before, colon, path = value.partition(":")
    if colon and "/" not in before:  # host:path, as for scp
        return not before.rpartition("@")[2].startswith("-") and not path.startswith("-")
    return True


def is_loopback(host: str) -> bool:
    """Whether a host, with or without a port, is this machine."""
    return _LOOPBACK.fullmatch(host) is not None
