"""
How any key or scope becomes a short portable name, injectively.

A name is safe as a file name on every platform, as a part of an object key and as a part of a Redis key: lower-case
letters, digits, `-`, `_`, `.` and, only in names that were derived by hashing, one `~`. Lower case, because some file
systems fold case; at most `MAX_NAME` characters, because some allow no more than 143 bytes and backends add a few.
"""

import re
from collections.abc import Collection, Sequence
from hashlib import sha256
from typing import Any

from haybaler.errors import ConfigurationError

MAX_NAME = 80
SCOPE_MARK = "@"

_DIGEST_CHARS = 32  # 128 bits: two different keys never meet by chance
_STEM_CHARS = 36
# As many characters as `MAX_NAME` allows, the last of them no dot; and no name that Windows gives to a device, with any
# extension.
_PORTABLE = r"(?!(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\.|{end}))[a-z0-9_](?:[a-z0-9_.-]{{0,78}}[a-z0-9_-])?{end}"
_PLAIN = re.compile(_PORTABLE.format(end=r"\Z"))
_PLAIN_LINES = re.compile("(?:" + _PORTABLE.format(end=r"\n") + r")*\Z")
_HASHED = re.compile(r"[a-z0-9_-]{0,36}~[0-9a-f]{32}(\.[a-z0-9]{1,10})?\Z")
_SUFFIX = re.compile(r"\.[a-z0-9]{1,10}\Z")
_UNSAFE = re.compile(r"[^a-z0-9_-]+")


def encode_name(key: str) -> str:
    """
    Return the name of `key`: the key itself where that is portable, else a readable stem and a digest.

    :param key: Any string.
    :returns: A name that `is_name` accepts, different for every different key.
    """
    if _PLAIN.match(key):
        return key
    folded = key.lower()
    suffix = match.group() if (match := _SUFFIX.search(folded)) else ""
    stem = slug(folded[: len(folded) - len(suffix)], _STEM_CHARS)
    digest = sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]
    return f"{stem}~{digest}{suffix}"


def encode_names(keys: Collection[str]) -> list[str]:
    """
    Return the names of many keys, quicker than one by one.

    :param keys: Any strings.
    :returns: Name i belongs to key i.
    """
    lines = "\n".join((*keys, ""))
    if lines.count("\n") == len(keys) and _PLAIN_LINES.match(lines):
        return list(keys)
    return [encode_name(key) for key in keys]


def slug(text: str, length: int) -> str:
    """
    Return a readable remainder of any text. Different texts may have the same one.

    :param text: Any string.
    :param length: The most characters to keep.
    :returns: Lower-case letters, digits, `_` and single `-`.
    """
    return _UNSAFE.sub("-", text[: 2 * length].lower()).strip("-")[:length]


def is_name(text: str) -> bool:
    """
    Whether `text` has the form of a name that `encode_name` gives.

    :param text: What stands where a reference should have a name.
    :returns: False for anything that could leave its folder or stand for something else.
    """
    return (_PLAIN.match(text) or _HASHED.match(text)) is not None


def encode_scope(scope: str) -> tuple[str, ...]:
    """
    Return the folder names of a scope. They begin with `SCOPE_MARK`, which no entry's name has.

    :param scope: Any string; `/` separates the parts.
    :returns: One name for each part, outermost first.
    """
    return tuple(SCOPE_MARK + encode_name(part) for part in scope.split("/"))


def checked_scope(names: Any) -> tuple[str, ...]:
    """
    Return the folder names of a scope that comes from a serialized form.

    :param names: What `encode_scope` gave once.
    :returns: The names.
    :raises ConfigurationError: If one of them has another form, so that it could leave its folder.
    """
    if not isinstance(names, Sequence) or not all(map(is_scope_name, names)):
        raise ConfigurationError("The serialized scope is not one that haybaler wrote.")
    return tuple(names)


def is_scope_name(name: object) -> bool:
    """
    Whether something has the form of a name that `encode_scope` gives.

    :param name: What stands where a folder should have a name.
    :returns: False for anything that could leave its folder.
    """
    return isinstance(name, str) and name.startswith(SCOPE_MARK) and is_name(name.removeprefix(SCOPE_MARK))


def is_path(text: str) -> bool:
    """
    Whether `text` has the form of a path: names of scopes, then the name of an entry.

    :param text: What stands where a path should be.
    :returns: False for anything that no store of haybaler's makes.
    """
    *scopes, name = text.split("/")
    return is_name(name) and all(map(is_scope_name, scopes))
