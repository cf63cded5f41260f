"""Patterns of secrets, one rule a kind, and tests that separate random values from words, names and placeholders.

All patterns are over bytes and match ASCII only, so that cutting a match out of valid UTF-8 leaves valid UTF-8.
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Callable
from string import ascii_letters, digits, hexdigits
from typing import NamedTuple


class Rule(NamedTuple):
    """A kind of secret: the group `secret` of a match of `expression`, or the whole match if there is no such group.

    Every match contains one of `anchors`. `check` tests the secret; None accepts every match. `least` is the minimum
    length of the unbroken run of token characters around an anchor.
    """

    kind: str
    anchors: tuple[bytes, ...]
    expression: bytes
    check: Callable[[bytes], bool] | None
    least: int = 0

    @property
    def pattern(self) -> re.Pattern[bytes]:
        """The expression, compiled on first use: compiling all of them takes longer than searching most texts."""
        return _compiled(self.expression)


@functools.cache
def _compiled(expression: bytes) -> re.Pattern[bytes]:
    return re.compile(expression, re.DOTALL)


# What may precede a token: no character of a longer word, but an escape in text that was quoted again, a
# percent-encoded character, or a terminal's colour. `%(n)d` is the number of the token's characters already matched at
# this point: a pattern that begins with letters is many times as fast as one that looks behind first.
_BEGIN = (
    rb"(?:(?<![A-Za-z0-9_-].{%(n)d})|(?<=\\[nrtbf].{%(n)d})|(?<=%%[0-9A-Fa-f]{2}.{%(n)d})|(?<=[0-9\[][mK].{%(n)d}))"
)
# What may precede a token with an unmistakable beginning: also an option's letter (`-u`), or a word and `-` or `_`.
_GLUED_BEGIN = (
    rb"(?:(?<![A-Za-z0-9].{%(n)d})|(?<=-[A-Za-z].{%(n)d})|(?<=\\[nrtbf].{%(n)d})|(?<=%%[0-9A-Fa-f]{2}.{%(n)d})"
    rb"|(?<=[0-9\[][mK].{%(n)d}))"
)
_END = rb"(?![A-Za-z0-9_-])"

#: Words that appear in documentation and tests but not in a real secret.
_PLACEHOLDER = re.compile(
    rb"example|sample|dummy|placeholder|change_?me|redacted|insert|replace|xxxxx|[*]{3}|[.]{3}|0000000|1234567890|abcdefg"
    rb"|deadbeef|(?<![A-Za-z0-9])(?:your|my|fake|mock|foo|bar|test)[_-]|test[_-]?(?:key|token|secret|pass)",
    re.IGNORECASE,
)
#: A word, capitalised or not, as part of a name: `max`, `Tokens`, `v2`, `HTTP`.
_WORD = re.compile(rb"[A-Za-z]?[a-z]*[0-9]{0,2}|[A-Z]+[0-9]{0,2}|(?:[A-Z][a-z]+)+[0-9]{0,2}|[0-9]{1,8}")
_DIGITS = digits.encode()
_LETTERS = ascii_letters.encode()
_HEXADECIMAL = hexdigits.encode() + b"-"
_KEY_CHARACTERS = _LETTERS + _DIGITS + b"_-+/=.~"
_PARTS = re.compile(rb"[-_./:+=~]")


def entropy(value: bytes) -> float:
    """Bits a character, from the frequencies within the value itself."""
    return -sum(count / len(value) * math.log2(count / len(value)) for count in Counter(value).values())


def is_placeholder(value: bytes) -> bool:
    """Whether the value identifies itself as a placeholder."""
    return bool(_PLACEHOLDER.search(value))


def is_random(value: bytes) -> bool:
    """Whether a token with a known form has a real value, not `xxxx` or `your-key-here`."""
    return len(set(value)) > 8 and not is_placeholder(value)


def is_key(value: bytes) -> bool:
    """Whether a value whose name calls it a key or token looks like one: long, random, and not itself a name."""
    # The cheapest tests come first: hostile text can have a value at every other byte.
    if not 16 <= len(value) <= 512 or value.translate(None, _KEY_CHARACTERS):
        return False
    if len(value) - len(value.translate(None, _DIGITS)) < 2 or len(value) - len(value.translate(None, _LETTERS)) < 2:
        return False
    least, distinct = (3.0, 8) if not value.translate(None, _HEXADECIMAL) else (3.5, 12)
    if len(set(value)) < distinct or entropy(value) < least or is_placeholder(value):
        return False
    return not all(map(_WORD.fullmatch, _PARTS.split(value)))


def is_password(value: bytes) -> bool:
    """Whether a value whose name calls it a password looks like one in use."""
    if not 8 <= len(value) <= 128 or is_placeholder(value) or len(set(value)) < 6:
        return False
    if re.search(rb"passw|secret|admin|hunter2|test|qwert|\bpwd\b|12345", value, re.IGNORECASE):
        return False
    kinds = [rb"[a-z]", rb"[A-Z]", rb"[0-9]", rb"[!-/:-@\[-`{-~]"]
    return sum(bool(re.search(kind, value)) for kind in kinds) >= 3 and bool(re.search(rb"[0-9]", value))


def _is_jwt(value: bytes) -> bool:
    return all(len(part) >= 16 for part in value.split(b".")[:2])


def is_private(value: bytes) -> bool:
    """Whether a block contains a key, not only the lines around one."""
    inside = re.sub(rb"-----[A-Z ]+-----|\\[nr]", b"", value)
    return sum(map(len, re.findall(rb"[A-Za-z0-9+/=]{16,}", inside))) >= 64 and not is_placeholder(value)


def _is_url_password(value: bytes) -> bool:
    weak = rb"pass(?:word|wd)?|pwd|pw|secret|user(?:name)?|token|postgres|mysql|root|admin|guest|test|[a-z]|[xX.*]+"
    return not is_placeholder(value) and not re.fullmatch(weak, value, re.IGNORECASE)


#: The shortest run of letters, digits and `_-~` within a token.
RUN = 20


def _rule(
    kind: str, anchors: bytes, rest: bytes, check: Callable[[bytes], bool] | None = is_random, *, least: int = RUN
) -> Rule:
    """A rule for tokens that begin with an anchor, followed by `rest`."""
    heads = anchors.split()
    begin = _GLUED_BEGIN if all(map(is_telling, heads)) else _BEGIN
    # A common beginning is searched for fastest, so it comes before what differs.
    differing = (place for place, of in enumerate(zip(*heads, strict=False)) if len({*of}) > 1)
    common = heads[0][: next(differing, min(map(len, heads)))]
    ends = (re.escape(head[len(common) :]) + begin % {b"n": len(head)} for head in heads)
    return Rule(kind, tuple(heads), re.escape(common) + b"(?:%s)" % b"|".join(ends) + rest, check, least)


def _inner(
    kind: str,
    anchors: bytes,
    first: bytes,
    rest: bytes,
    check: Callable[[bytes], bool] | None = is_random,
    *,
    least: int = RUN,
) -> Rule:
    """A rule for tokens with an anchor inside. `first` matches one character at the beginning, or is empty."""
    begin = _BEGIN % {b"n": 1 if first else 0}
    return Rule(kind, tuple(anchors.split()), first + begin + rest, check, least)


def is_telling(anchor: bytes) -> bool:
    """Whether only tokens of its kind begin with this anchor, whatever precedes it."""
    return (len(anchor) >= 3 and anchor.endswith((b"_", b"-")) and anchor not in (b"sk-", b"key-")) or anchor in (
        *(b"AKIA", b"ASIA", b"ABIA", b"ACCA", b"AIza", b"xoxe.", b"pypi-AgE", b"AGE-SECRET-KEY-1"),
    )


#: `secrets.find` matches it in parts: a single pattern would rescan a long run from each `eyJ` in it.
JWT = Rule("jwt", (b"eyJ",), rb"eyJ" + _BEGIN % {b"n": 3}, _is_jwt, RUN)
#: What follows its first part, from the dot on; and the minimum length of that part after `eyJ`.
JWT_REST = re.compile(rb"\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}")
JWT_PART = 10

#: Tokens recognised by their beginning. Anchors lie within such a run.
TOKENS: tuple[Rule, ...] = (
    _rule("aws-access-key", b"AKIA ASIA ABIA ACCA", rb"[A-Z2-7]{16}" + _END),
    _rule("github-token", b"ghp_ gho_ ghu_ ghs_ ghr_", rb"[A-Za-z0-9]{36,255}" + _END),
    _rule("github-token", b"github_pat_", rb"[A-Za-z0-9]{22}_[A-Za-z0-9]{59}" + _END),
    _rule(
        "gitlab-token",
        b"glpat- glptt- gldt- glrt- glcbt- glsoat- glft- glimt- glagent-",
        rb"[A-Za-z0-9_-]{20,}(?:\.[0-9a-z]{2}\.[0-9a-z]{9})?",
    ),
    _rule("slack-token", b"xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs- xoxe.", rb"[A-Za-z0-9.-]{20,}"),
    _rule("slack-token", b"xapp-", rb"[0-9]-[A-Za-z0-9-]{20,}"),
    _rule("stripe-key", b"sk_live_ sk_test_ rk_live_ rk_test_", rb"[A-Za-z0-9]{16,}"),
    _rule("stripe-key", b"whsec_", rb"[A-Za-z0-9+/]{24,}"),
    _rule("npm-token", b"npm_", rb"[A-Za-z0-9]{36}" + _END),
    _rule("pypi-token", b"pypi-AgE", rb"[A-Za-z0-9_-]{50,}"),
    JWT,
    _rule("anthropic-key", b"sk-ant-", rb"[a-z0-9]{3,12}-[A-Za-z0-9_-]{32,}"),
    _rule("openai-key", b"sk-proj- sk-svcacct- sk-admin-", rb"[A-Za-z0-9_-]{32,}"),
    _rule("openai-key", b"sk-", rb"[A-Za-z0-9]{32,64}" + _END, least=35),
    _rule("openrouter-key", b"sk-or-", rb"v[0-9]-[0-9a-f]{64}" + _END),
    _rule("google-api-key", b"AIza", rb"[A-Za-z0-9_-]{35}" + _END),
    _rule("google-oauth", b"GOCSPX-", rb"[A-Za-z0-9_-]{28}" + _END),
    _rule("google-oauth", b"ya29.", rb"[A-Za-z0-9_-]{30,}"),
    _inner("azure-secret", b"Q~", b"", rb"[A-Za-z0-9_~.-]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}" + _END, least=37),
    _rule("sendgrid-key", b"SG.", rb"[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}" + _END),
    _rule("twilio-key", b"SK", rb"[0-9a-f]{32}" + _END, least=34),
    _inner("telegram-token", b"AA", b"", rb"[0-9]{8,10}:AA[A-Za-z0-9_-]{33}" + _END, least=35),
    _inner(
        "discord-token",
        b".",
        rb"[MNO]",
        rb"[A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}" + _END,
        least=24,
    ),
    _rule("huggingface-token", b"hf_ api_org_", rb"[A-Za-z]{34,40}" + _END),
    _rule("digitalocean-token", b"dop_v1_ doo_v1_ dor_v1_", rb"[0-9a-f]{64}" + _END),
    _rule("shopify-token", b"shpat_ shpca_ shppa_ shpss_", rb"[0-9a-fA-F]{32}" + _END),
    _rule("databricks-token", b"dapi", rb"[0-9a-f]{32}(?:-[0-9])?" + _END),
    _rule("linear-key", b"lin_", rb"(?:api|oauth)_[A-Za-z0-9]{32,64}" + _END),
    _rule("notion-token", b"ntn_", rb"[A-Za-z0-9]{40,60}" + _END),
    _rule("mailgun-key", b"key-", rb"[0-9a-f]{32}" + _END, least=36),
    _inner("mailchimp-key", b"-us", b"", rb"[0-9a-f]{32}-us[0-9]{1,2}" + _END, least=36),
    _rule("square-token", b"EAAA", rb"[A-Za-z0-9_-]{60}" + _END),
    _rule("square-token", b"sq0csp- sq0atp-", rb"[A-Za-z0-9_-]{22,43}" + _END),
    _rule("grafana-token", b"glsa_", rb"[A-Za-z0-9]{32}_[0-9a-fA-F]{8}"),
    _rule("grafana-token", b"glc_", rb"[A-Za-z0-9+/=]{32,}"),
    _rule("newrelic-key", b"NRAK-", rb"[A-Z0-9]{27}" + _END),
    _rule("vault-token", b"hvs. hvb. hvr.", rb"[A-Za-z0-9_-]{24,}"),
    _inner("terraform-token", b".atlasv1.", b"", rb"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_-]{60,}"),
    _rule("doppler-token", b"dp.pt. dp.st.", rb"(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,44}" + _END),
    _rule("pulumi-token", b"pul-", rb"[0-9a-f]{40}" + _END),
    _rule("age-key", b"AGE-SECRET-KEY-1", rb"[0-9A-Z]{58}" + _END),
    _rule("docker-token", b"dckr_", rb"(?:pat|oat)_[A-Za-z0-9_-]{27,40}" + _END),
    _rule("sentry-token", b"sntrys_ sntryu_", rb"[A-Za-z0-9+/=_-]{40,}"),
    _rule("figma-token", b"figd_", rb"[A-Za-z0-9_-]{40,}"),
    _rule("postman-key", b"PMAK-", rb"[0-9a-f]{24}-[0-9a-f]{34}" + _END),
    _rule("airtable-token", b"pat", rb"[A-Za-z0-9]{14}\.[0-9a-f]{64}" + _END, least=64),
    _rule("heroku-key", b"HRKU-", rb"[A-Za-z0-9_-]{36,}"),
    _rule("rubygems-key", b"rubygems_", rb"[0-9a-f]{48}" + _END),
    _rule("groq-key", b"gsk_", rb"[A-Za-z0-9]{52}" + _END),
    _rule("replicate-token", b"r8_", rb"[A-Za-z0-9]{37}" + _END),
    _rule("perplexity-key", b"pplx-", rb"[A-Za-z0-9]{40,56}" + _END),
    _rule("xai-key", b"xai-", rb"[A-Za-z0-9]{70,90}" + _END),
    _rule("supabase-token", b"sbp_", rb"[0-9a-f]{40}" + _END),
    _rule("planetscale-token", b"pscale_", rb"(?:tkn|pw|oauth)_[A-Za-z0-9_.=-]{32,}"),
)  # fmt: skip

#: Secrets in an address. Every match contains `://`.
ADDRESSES: tuple[Rule, ...] = (
    Rule(
        "slack-webhook",
        (b"hooks.slack.com",),
        rb"https://hooks\.slack\.com/(?:services|workflows)/(?P<secret>[A-Za-z0-9_/-]{40,})",
        None,
    ),
    Rule(
        "discord-webhook",
        (b"/webhooks/",),
        rb"https://discord(?:app)?\.com/api/webhooks/(?P<secret>[0-9]{15,22}/[A-Za-z0-9_-]{60,})",
        None,
    ),
    Rule(
        "azure-signature",
        (b"sig=",),
        rb"[?&]sig=(?P<secret>[A-Za-z0-9%+/_-]{43,60}(?:=|%3[dD])?)",
        is_random,
    ),
    Rule(
        "connection-string",
        (b"@",),
        rb"[a-zA-Z][a-zA-Z0-9+.-]{1,30}://[!#-&(-.0-9;=?A-Z\\^_a-z{-~]{0,100}:"
        rb"(?!\[REDACTED:)(?P<secret>[!#-&(-.0-9:;=?A-Z^_a-z|~]{3,200})@[A-Za-z0-9\[]",
        _is_url_password,
    ),
)

#: The lines around a private key. The last dashes are not part of the match: they may also begin the next line.
KEY_BEGIN = re.compile(rb"-----BEGIN (?:[A-Z0-9]{2,12} ){0,2}PRIVATE KEY(?: BLOCK)?(?=-----)")
KEY_END = re.compile(rb"-----END (?:[A-Z0-9]{2,12} ){0,2}PRIVATE KEY(?: BLOCK)?(?=-----)")
DASHES = 5
#: The most bytes between the two. Anything may precede each line: a number with an arrow, a sign of a diff, the file's
#: name.
KEY_BYTES = 16_384
#: Without an end, a key extends as far as lines look like those of one.
KEY_LINES = re.compile(
    rb"(?:(?:\s|\\[nr])+(?:(?:[0-9]+(?:\xe2\x86\x92|\xe2\x94\x82|[:|\t ])|[+>|-])[ \t]*)?[A-Za-z0-9+/=]{16,})+"
)

DJANGO_KEY = Rule(
    "django-key",
    (b"django-insecure-",),
    rb"django-insecure-(?P<secret>[!#-&(-\[\]-~]{20,80})",
    is_random,
)

#: Where a value may begin, and the name before it. The beginning is searched for first, because it is rare. The value
#: is a lookahead, since it can contain others, as an address does.
VALUE = re.compile(
    rb"[:=>][ \t]{0,4}\\{0,2}(?:b?[\"'`])?(?:(?:[Bb]earer|[Bb]asic|[Tt]oken) )?"
    rb"(?=(?P<secret>[A-Za-z0-9_\-+/=.~!@#%^?]{8,512}))"
)
NAME = re.compile(rb"([A-Za-z][A-Za-z0-9_.-]{1,60})[\"'`\\\]]{0,3}[ \t]{0,4}[:=]?$")
#: Endings of names whose value may stand beside them without a sign, and what follows there: in a table, in arguments,
#: or after a space.
BESIDE_ENDS = (b"password", b"passwd", b"secret", b"token", b"key")
BESIDE = re.compile(
    rb"[\"'`]?(?:(?P<space> )|\t[ \t]{0,20}|[ \t]{1,40}[\t|][ \t]{0,20}|\|[ \t]{0,20}|, ?)[\"'`]?"
    rb"(?P<secret>[A-Za-z0-9_\-+/=.~!@#%^?]{16,512})"
)
#: Such a name in full, and what precedes one after which a space suffices: a shell sets it, or it is in a `.netrc`.
WHOLE_NAME = re.compile(rb"[A-Za-z][A-Za-z0-9_.-]{1,60}$")
SET = re.compile(
    rb"(?:^|[\s;&|(])(?:set(?:env|x)?(?: -[a-zA-Z]{1,8})*|export|declare) [A-Z][A-Z0-9_]{2,60}$"
    rb"|login\s{1,20}\S{1,60}\s{1,20}password$"
)
#: Endings of options whose value is secret, with what precedes the value; and the beginning of such an option.
OPTION_END = re.compile(
    rb"(?:password|passwd|token|secret|api-?key|access-key)[ =][\"']?(?=[A-Za-z0-9_\-+/=.~!@#%^?]{8})"
)
OPTION_BEGIN = re.compile(rb"--(?P<name>[a-z-]{0,30})$")
OPTION_BYTES = 32
OPTION_VALUE = re.compile(rb"[A-Za-z0-9_\-+/=.~!@#%^?]{8,512}")

_PASSWORD_NAME = re.compile(rb"(?:passw(?:or)?d|passphrase|pwd|passwort)[0-9]?$")
_KEY_NAME = re.compile(
    rb"(?:secret|token|credentials?|authorization|authkey|secretkeybase"
    rb"|(?:api|access|account|auth|client|encryption|license|master|private|secret|service|shared|signing|storage)key)"
    rb"[0-9]?(?:value)?$"
)
#: Endings of the names of cookies that identify somebody.
COOKIE_ENDS = (b"session", b"sessionid", b"sess", b"sid", b"auth", b"jwt")
COOKIE = re.compile(rb"cookie[\"']?:", re.IGNORECASE)
#: Endings of names that are examined further.
NAME_ENDS = (
    *(b"password", b"passwd", b"passphrase", b"pwd", b"passwort", b"secret", b"token", b"credential", b"credentials"),
    *(b"authorization", b"key", b"base", b"value"),
)
_NO_SECRET_NAME = re.compile(
    rb"(?:csrf|xsrf|next|page|nextpage|continuation|cancellation|public|sync|eos|bos|pad|stop|trial)token$"
)


def kind_by_name(name: bytes, value: bytes) -> str:
    """The kind of secret that a value is by its name and its looks; empty for none."""
    plain = re.sub(rb"[_.-]", b"", name).lower()
    if _PASSWORD_NAME.search(plain):
        return "password" if is_password(value) or is_key(value) else ""
    if _KEY_NAME.search(plain) and not _NO_SECRET_NAME.search(plain):
        return "credential" if is_key(value) else ""
    return ""
