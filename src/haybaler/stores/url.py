"""
The URL of a store, taken apart and checked. Pure: nothing is opened or looked up.

No error text repeats a part of the URL other than its scheme and the name of an option: the rest may be a credential.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from haybaler.errors import ConfigurationError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,63})://")
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """
    A store's URL in its parts.

    :param scheme: What stands before `://`, in lower case.
    :param authority: What stands between `//` and the path, as written; left out of the `repr`, for it may hold
        credentials.
    :param path: The percent-decoded path, with its leading `/`; empty if there is none.
    :param options: The options after `?`, percent-decoded and converted; ready to be passed to a constructor.
    """

    scheme: str
    authority: str = field(repr=False)
    path: str
    options: dict[str, Any] = field(repr=False)


def parse_store_url(
    url: str, *, schemes: Collection[str], options: Mapping[str, Callable[[str], Any]] | None = None
) -> StoreUrl:
    """
    Take a store's URL apart.

    :param url: For example `file:///var/lib/results?references=relative`.
    :param schemes: The schemes that are allowed, in lower case.
    :param options: What may stand after `?`: for each option's name the function that converts its decoded text, for
        example `str`, `int` or `boolean`, and raises `ValueError` for a text that it cannot convert.
    :returns: The parts.
    :raises ConfigurationError: If the URL is malformed, has another scheme, a fragment, or an option that is unknown,
        repeated or not convertible.
    """
    scheme = scheme_of(url)
    if scheme not in schemes:
        raise ConfigurationError(f"The store URL must begin with {' or '.join(f'{name}://' for name in schemes)}.")
    try:
        parts = urlsplit(url)
    except ValueError:  # its text may repeat the credentials
        raise ConfigurationError("The host of the store URL is malformed.") from None
    if parts.fragment or url.endswith("#"):
        raise ConfigurationError("A store URL has no fragment; write a literal `#` as %23.")
    if "@" in parts.query:  # most likely a password with a bare `?`: naming its parts as options would show it
        raise ConfigurationError("Write a literal `?` or `@` in a store URL as %3F or %40.")
    return StoreUrl(scheme, parts.netloc, _decoded(parts.path), _converted(parts.query, options or {}))


def scheme_of(url: str) -> str:
    """
    Return the scheme of a store's URL.

    :param url: The URL.
    :returns: What stands before `://`, in lower case.
    :raises ConfigurationError: If nothing does, or the URL contains control characters.
    """
    match = _SCHEME.match(url)
    if match is None or not url.isprintable():
        raise ConfigurationError("A store URL has the form `scheme://...`, without control characters.")
    return match.group(1).lower()


def boolean(text: str) -> bool:
    """
    Convert the text of an option that is on or off.

    :param text: `true` or `false`.
    :returns: The value.
    :raises ValueError: For any other text.
    """
    if text not in {"true", "false"}:
        raise ValueError("not true or false")
    return text == "true"


def _decoded(text: str) -> str:
    if _BROKEN_ESCAPE.search(text):
        raise ConfigurationError("A `%` in a store URL must begin an escape such as %20; write a literal one as %25.")
    try:
        decoded = unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise ConfigurationError("The escapes in a store URL must be UTF-8.") from None
    if not decoded.isprintable():
        raise ConfigurationError("A store URL must not contain control characters, not even escaped ones.")
    return decoded


def _converted(query: str, converters: Mapping[str, Callable[[str], Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for part in query.split("&") if query else ():
        name, _, text = (_decoded(piece) for piece in part.partition("="))
        if name not in converters:
            known = ", ".join(sorted(converters)) or "none"
            raise ConfigurationError(f"The store URL has an unknown option {name!r}; known options: {known}.")
        if name in values:
            raise ConfigurationError(f"The store URL gives the option {name!r} twice.")
        try:
            values[name] = converters[name](text)
        except ValueError:  # its text may repeat the value
            raise ConfigurationError(f"The store URL's option {name!r} has a value that is not allowed.") from None
    return values
