"""What a secret looks like: one rule a kind, and what tells a random value from a word, a name or a placeholder.

All patterns are over bytes and match ASCII only, so that cutting a match out of valid UTF-8 leaves valid UTF-8.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple


class Rule(NamedTuple):
    """A kind of secret. Of a match, the group `secret` is what is secret; without one, all of it.

    Every match holds one of `anchors`. `check` is asked about the secret; none takes every match. `least` is how long
    the unbroken run of a token's characters is that an anchor lies in.
    """

    kind: str
    anchors: tuple[bytes, ...]
    pattern: re.Pattern[bytes]
    check: Callable[[bytes], bool] | None
    least: int = 0


# What a token of its own may follow: no character of a longer word, but an escape in text that was quoted once more, a
# percent-encoded character, or a terminal's colour.
_BEGIN = rb"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrtbf])|(?<=%[0-9A-Fa-f]{2})|(?<=[0-9\[][mK]))"
# What one may follow that nothing else begins like: also an option's letter (`-u`), a word with `-` or `_` behind it.
_GLUED_BEGIN = rb"(?:(?<![A-Za-z0-9])|(?<=-[A-Za-z])|(?<=\\[nrtbf])|(?<=%[0-9A-Fa-f]{2})|(?<=[0-9\[][mK]))"
_END = rb"(?![A-Za-z0-9_-])"

#: Words that a real secret does not hold, and that documentation and tests do.
_PLACEHOLDER = re.compile(
    rb"example|sample|dummy|placeholder|change_?me|redacted|insert|replace|xxxxx|[*]{3}|[.]{3}|0000000|1234567890|abcdefg"
    rb"|deadbeef|(?<![A-Za-z0-9])(?:your|my|fake|mock|foo|bar|test)[_-]|test[_-]?(?:key|token|secret|pass)",
    re.IGNORECASE,
)
#: A word, capitalised or not, as it stands in a name: `max`, `Tokens`, `v2`, `HTTP`.
_WORD = re.compile(rb"[A-Za-z]?[a-z]*[0-9]{0,2}|[A-Z]+[0-9]{0,2}|(?:[A-Z][a-z]+)+[0-9]{0,2}|[0-9]{1,8}")
_PARTS = re.compile(rb"[-_./:+=~]")


def entropy(value: bytes) -> float:
    """Bits a character, by how often each occurs in the value itself."""
    return -sum(count / len(value) * math.log2(count / len(value)) for count in Counter(value).values())


def is_placeholder(value: bytes) -> bool:
    """Whether the value says of itself that it is none."""
    return bool(_PLACEHOLDER.search(value))


def is_random(value: bytes) -> bool:
    """Whether a token that its form gives away holds a value, and not `xxxx` or `your-key-here`."""
    return len(set(value)) > 8 and not is_placeholder(value)


def is_key(value: bytes) -> bool:
    """Whether a value that only its name calls a key or a token looks like one: long, random, and no name itself."""
    if not 16 <= len(value) <= 512 or is_placeholder(value) or not re.fullmatch(rb"[A-Za-z0-9_\-+/=.~]+", value):
        return False
    digits = sum(48 <= byte <= 57 for byte in value)
    letters = sum(65 <= byte <= 90 or 97 <= byte <= 122 for byte in value)
    if digits < 2 or letters < 2 or entropy(value) < (3.0 if re.fullmatch(rb"[0-9a-fA-F-]+", value) else 3.5):
        return False
    return not all(map(_WORD.fullmatch, _PARTS.split(value)))


def is_password(value: bytes) -> bool:
    """Whether a value that its name calls a password looks like one that somebody uses."""
    if not 8 <= len(value) <= 128 or is_placeholder(value) or len(set(value)) < 6:
        return False
    if re.search(rb"passw|secret|admin|hunter2|test|qwert|\bpwd\b|12345", value, re.IGNORECASE):
        return False
    kinds = [rb"[a-z]", rb"[A-Z]", rb"[0-9]", rb"[!-/:-@\[-`{-~]"]
    return sum(bool(re.search(kind, value)) for kind in kinds) >= 3 and bool(re.search(rb"[0-9]", value))


def _is_jwt(value: bytes) -> bool:
    return all(len(part) >= 16 for part in value.split(b".")[:2])


def _is_private(value: bytes) -> bool:
    """Whether a block holds a key, and not only the lines around one."""
    inside = re.sub(rb"-----[A-Z ]+-----|\\[nr]", b"", value)
    return sum(map(len, re.findall(rb"[A-Za-z0-9+/=]{16,}", inside))) >= 64 and not is_placeholder(value)


def _is_url_password(value: bytes) -> bool:
    weak = rb"pass(?:word|wd)?|pwd|pw|secret|user(?:name)?|token|postgres|mysql|root|admin|guest|test|[a-z]|[xX.*]+"
    return not is_placeholder(value) and not re.fullmatch(weak, value, re.IGNORECASE)


#: The shortest run of letters, digits and `_-~` that a token has in it.
RUN = 20


def _rule(
    kind: str, anchors: bytes, pattern: bytes, check: Callable[[bytes], bool] | None = is_random, *, least: int = RUN
) -> Rule:
    begin = _GLUED_BEGIN if all(map(is_telling, anchors.split())) else _BEGIN
    return Rule(kind, tuple(anchors.split()), re.compile(begin + pattern), check, least)


def is_telling(anchor: bytes) -> bool:
    """Whether nothing but a token of its kind begins so, whatever stands before it."""
    return (len(anchor) >= 3 and anchor.endswith((b"_", b"-")) and anchor not in (b"sk-", b"key-")) or anchor in (
        *(b"AKIA", b"ASIA", b"ABIA", b"ACCA", b"AIza", b"xoxe.", b"pypi-AgE", b"AGE-SECRET-KEY-1"),
    )


#: Tokens that are known by how they begin. Anchors lie within such a run.
TOKENS: tuple[Rule, ...] = (
    _rule("aws-access-key", b"AKIA ASIA ABIA ACCA", rb"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}" + _END),
    _rule("github-token", b"ghp_ gho_ ghu_ ghs_ ghr_", rb"gh[pousr]_[A-Za-z0-9]{36,255}" + _END),
    _rule("github-token", b"github_pat_", rb"github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}" + _END),
    _rule(
        "gitlab-token",
        b"glpat- glptt- gldt- glrt- glcbt- glsoat- glft- glimt- glagent-",
        rb"gl(?:pat|ptt|dt|rt|cbt|soat|ft|imt|agent)-[A-Za-z0-9_-]{20,}(?:\.[0-9a-z]{2}\.[0-9a-z]{9})?",
    ),
    _rule("slack-token", b"xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs- xoxe.", rb"xox[abeoprs][.-][A-Za-z0-9.-]{20,}"),
    _rule("slack-token", b"xapp-", rb"xapp-[0-9]-[A-Za-z0-9-]{20,}"),
    _rule("stripe-key", b"sk_live_ sk_test_ rk_live_ rk_test_", rb"(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}"),
    _rule("stripe-key", b"whsec_", rb"whsec_[A-Za-z0-9+/]{24,}"),
    _rule("npm-token", b"npm_", rb"npm_[A-Za-z0-9]{36}" + _END),
    _rule("pypi-token", b"pypi-AgE", rb"pypi-AgE[A-Za-z0-9_-]{50,}"),
    _rule("jwt", b"eyJ", rb"eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}", _is_jwt),
    _rule("anthropic-key", b"sk-ant-", rb"sk-ant-[a-z0-9]{3,12}-[A-Za-z0-9_-]{32,}"),
    _rule("openai-key", b"sk-proj- sk-svcacct- sk-admin-", rb"sk-(?:proj|svcacct|admin)-[A-Za-z0-9_-]{32,}"),
    _rule("openai-key", b"sk-", rb"sk-[A-Za-z0-9]{32,64}" + _END, least=35),
    _rule("openrouter-key", b"sk-or-", rb"sk-or-v[0-9]-[0-9a-f]{64}" + _END),
    _rule("google-api-key", b"AIza", rb"AIza[A-Za-z0-9_-]{35}" + _END),
    _rule("google-oauth", b"GOCSPX-", rb"GOCSPX-[A-Za-z0-9_-]{28}" + _END),
    _rule("google-oauth", b"ya29.", rb"ya29\.[A-Za-z0-9_-]{30,}"),
    _rule("azure-secret", b"Q~", rb"[A-Za-z0-9_~.-]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}" + _END, least=37),
    _rule("sendgrid-key", b"SG.", rb"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}" + _END),
    _rule("twilio-key", b"SK", rb"SK[0-9a-f]{32}" + _END, least=34),
    _rule("telegram-token", b"AA", rb"[0-9]{8,10}:AA[A-Za-z0-9_-]{33}" + _END, least=35),
    _rule(
        "discord-token",
        b".",
        rb"[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}" + _END,
        least=24,
    ),
    _rule("huggingface-token", b"hf_ api_org_", rb"(?:hf_|api_org_)[A-Za-z]{34,40}" + _END),
    _rule("digitalocean-token", b"dop_v1_ doo_v1_ dor_v1_", rb"do[opr]_v1_[0-9a-f]{64}" + _END),
    _rule("shopify-token", b"shpat_ shpca_ shppa_ shpss_", rb"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}" + _END),
    _rule("databricks-token", b"dapi", rb"dapi[0-9a-f]{32}(?:-[0-9])?" + _END),
    _rule("linear-key", b"lin_", rb"lin_(?:api|oauth)_[A-Za-z0-9]{32,64}" + _END),
    _rule("notion-token", b"ntn_", rb"ntn_[A-Za-z0-9]{40,60}" + _END),
    _rule("mailgun-key", b"key-", rb"key-[0-9a-f]{32}" + _END, least=36),
    _rule("mailchimp-key", b"-us", rb"[0-9a-f]{32}-us[0-9]{1,2}" + _END, least=36),
    _rule("square-token", b"EAAA", rb"EAAA[A-Za-z0-9_-]{60}" + _END),
    _rule("square-token", b"sq0csp- sq0atp-", rb"sq0(?:csp|atp)-[A-Za-z0-9_-]{22,43}" + _END),
    _rule("grafana-token", b"glsa_ glc_", rb"(?:glsa_[A-Za-z0-9]{32}_[0-9a-fA-F]{8}|glc_[A-Za-z0-9+/=]{32,})"),
    _rule("newrelic-key", b"NRAK-", rb"NRAK-[A-Z0-9]{27}" + _END),
    _rule("vault-token", b"hvs. hvb. hvr.", rb"hv[sbr]\.[A-Za-z0-9_-]{24,}"),
    _rule("terraform-token", b".atlasv1.", rb"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_-]{60,}"),
    _rule("doppler-token", b"dp.pt. dp.st.", rb"dp\.(?:pt|st)\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,44}" + _END),
    _rule("pulumi-token", b"pul-", rb"pul-[0-9a-f]{40}" + _END),
    _rule("age-key", b"AGE-SECRET-KEY-1", rb"AGE-SECRET-KEY-1[0-9A-Z]{58}" + _END),
    _rule("docker-token", b"dckr_", rb"dckr_(?:pat|oat)_[A-Za-z0-9_-]{27,40}" + _END),
    _rule("sentry-token", b"sntrys_ sntryu_", rb"sntry[su]_[A-Za-z0-9+/=_-]{40,}"),
    _rule("figma-token", b"figd_", rb"figd_[A-Za-z0-9_-]{40,}"),
    _rule("postman-key", b"PMAK-", rb"PMAK-[0-9a-f]{24}-[0-9a-f]{34}" + _END),
    _rule("airtable-token", b"pat", rb"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}" + _END, least=64),
    _rule("heroku-key", b"HRKU-", rb"HRKU-[A-Za-z0-9_-]{36,}"),
    _rule("rubygems-key", b"rubygems_", rb"rubygems_[0-9a-f]{48}" + _END),
    _rule("groq-key", b"gsk_", rb"gsk_[A-Za-z0-9]{52}" + _END),
    _rule("replicate-token", b"r8_", rb"r8_[A-Za-z0-9]{37}" + _END),
    _rule("perplexity-key", b"pplx-", rb"pplx-[A-Za-z0-9]{40,56}" + _END),
    _rule("xai-key", b"xai-", rb"xai-[A-Za-z0-9]{70,90}" + _END),
    _rule("supabase-token", b"sbp_", rb"sbp_[0-9a-f]{40}" + _END),
    _rule("planetscale-token", b"pscale_", rb"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.=-]{32,}"),
)  # fmt: skip

#: Secrets in an address. Every match holds `://`.
ADDRESSES: tuple[Rule, ...] = (
    Rule(
        "slack-webhook",
        (b"hooks.slack.com",),
        re.compile(rb"https://hooks\.slack\.com/(?:services|workflows)/(?P<secret>[A-Za-z0-9_/-]{40,})"),
        None,
    ),
    Rule(
        "discord-webhook",
        (b"/webhooks/",),
        re.compile(rb"https://discord(?:app)?\.com/api/webhooks/(?P<secret>[0-9]{15,22}/[A-Za-z0-9_-]{60,})"),
        None,
    ),
    Rule(
        "azure-signature",
        (b"sig=",),
        re.compile(rb"[?&]sig=(?P<secret>[A-Za-z0-9%+/_-]{43,60}(?:=|%3[dD])?)"),
        is_random,
    ),
    Rule(
        "connection-string",
        (b"@",),
        re.compile(
            rb"[a-zA-Z][a-zA-Z0-9+.-]{1,30}://[!#-&(-.0-9;=?A-Z\\^_a-z{-~]{0,100}:"
            rb"(?!\[REDACTED:)(?P<secret>[!#-&(-.0-9:;=?A-Z^_a-z|~]{3,200})@[A-Za-z0-9\[]"
        ),
        _is_url_password,
    ),
)

PRIVATE_KEY = Rule(
    "private-key",
    (b"PRIVATE KEY",),
    re.compile(
        rb"-----BEGIN (?:[A-Z0-9]{2,12} ){0,2}PRIVATE KEY(?: BLOCK)?-----"
        # What stands before each line may be anything: a number with an arrow, a sign of a diff, the file's name. Where
        # the end is missing, it goes as far as lines look like those of a key.
        rb"(?:[\s\S]{1,16384}?-----END (?:[A-Z0-9]{2,12} ){0,2}PRIVATE KEY(?: BLOCK)?-----"
        rb"|(?:(?:\s|\\[nr])+(?:(?:[0-9]+(?:\xe2\x86\x92|\xe2\x94\x82|[:|\t ])|[+>|-])[ \t]*)?[A-Za-z0-9+/=]{16,})+)"
    ),
    _is_private,
)

DJANGO_KEY = Rule(
    "django-key",
    (b"django-insecure-",),
    re.compile(rb"django-insecure-(?P<secret>[!#-&(-\[\]-~]{20,80})"),
    is_random,
)

#: Where the value of something may begin, and the name before it. That is looked for first: few places look so. The
#: value is only looked at, since one can have others in it, as an address has.
VALUE = re.compile(
    rb"[:=>][ \t]{0,4}\\{0,2}(?:b?[\"'`])?(?:(?:[Bb]earer|[Bb]asic|[Tt]oken) )?"
    rb"(?=(?P<secret>[A-Za-z0-9_\-+/=.~!@#%^?]{8,512}))"
)
NAME = re.compile(rb"([A-Za-z][A-Za-z0-9_.-]{1,60})[\"'`\\\]]{0,3}[ \t]{0,4}[:=]?$")
#: How names end whose value may stand beside them with no sign between, and what follows there: in a table, in
#: arguments, or behind a space.
BESIDE_ENDS = (b"password", b"passwd", b"secret", b"token", b"key")
BESIDE = re.compile(
    rb"[\"'`]?(?:(?P<space> )|\t[ \t]{0,20}|[ \t]{1,40}[\t|][ \t]{0,20}|\|[ \t]{0,20}|, ?)[\"'`]?"
    rb"(?P<secret>[A-Za-z0-9_\-+/=.~!@#%^?]{16,512})"
)
#: Such a name, whole, and what leads up to one behind which a space is enough: a shell sets it, or it is in a `.netrc`.
WHOLE_NAME = re.compile(rb"[A-Za-z][A-Za-z0-9_.-]{1,60}$")
SET = re.compile(
    rb"(?:^|[\s;&|(])(?:set(?:env|x)?(?: -[a-zA-Z]{1,8})*|export|declare) [A-Z][A-Z0-9_]{2,60}$"
    rb"|login\s{1,20}\S{1,60}\s{1,20}password$"
)
OPTION = re.compile(
    rb"--(?P<name>[a-z-]{0,30}(?:password|passwd|token|secret|api-?key|access-key))[ =][\"']?"
    rb"(?P<secret>[A-Za-z0-9_\-+/=.~!@#%^?]{8,512})"
)

_PASSWORD_NAME = re.compile(rb"(?:passw(?:or)?d|passphrase|pwd|passwort)[0-9]?$")
_KEY_NAME = re.compile(
    rb"(?:secret|token|credentials?|authorization|authkey|secretkeybase"
    rb"|(?:api|access|account|auth|client|encryption|license|master|private|secret|service|shared|signing|storage)key)"
    rb"[0-9]?(?:value)?$"
)
#: How the names of cookies end that say who somebody is.
COOKIE_ENDS = (b"session", b"sessionid", b"sess", b"sid", b"auth", b"jwt")
COOKIE = re.compile(rb"cookie[\"']?:", re.IGNORECASE)
#: How names end that are looked at more closely.
NAME_ENDS = (
    *(b"password", b"passwd", b"passphrase", b"pwd", b"passwort", b"secret", b"token", b"credential", b"credentials"),
    *(b"authorization", b"key", b"base", b"value"),
)
_NO_SECRET_NAME = re.compile(
    rb"(?:csrf|xsrf|next|page|nextpage|continuation|cancellation|public|sync|eos|bos|pad|stop|trial)token$"
)


def named(name: bytes, value: bytes) -> str:
    """The kind of secret that a value is by its name and its looks; empty for none."""
    plain = re.sub(rb"[_.-]", b"", name).lower()
    if _PASSWORD_NAME.search(plain):
        return "password" if is_password(value) or is_key(value) else ""
    if _KEY_NAME.search(plain) and not _NO_SECRET_NAME.search(plain):
        return "credential" if is_key(value) else ""
    return ""
