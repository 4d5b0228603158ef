"""What a store allows an entry: how large it may be, and how long it lives. Pure."""

from datetime import timedelta

from haybaler.errors import ConfigurationError, EntryTooLargeError
from haybaler.stores.driver import Content

LONGEST_TTL = 100 * 365 * 24 * 3600.0  # seconds; what servers can count to is further away


def time_to_live(ttl: float | timedelta | None) -> float | None:
    """
    Check a time to live.

    :param ttl: Seconds, or a `timedelta`; None for ever.
    :returns: Seconds, or None for ever.
    :raises ConfigurationError: If it is no number, not positive, or longer than anything can count.
    """
    seconds: object = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0.001 <= seconds <= LONGEST_TTL:
        raise ConfigurationError(f"`ttl` must be a number of seconds from 0.001 to {LONGEST_TTL:g}, not {ttl!r}.")
    return float(seconds)


def most_bytes_allowed(name: str, value: int | None) -> int | None:
    """
    Check a bound on sizes.

    :param name: The name of the parameter.
    :param value: The most bytes, or None for any number.
    :returns: The same.
    :raises ConfigurationError: If it is no whole number, or less than 1.
    """
    given: object = value
    if given is not None and (isinstance(given, bool) or not isinstance(given, int) or given < 1):
        raise ConfigurationError(f"`{name}` must be a whole number of at least 1, or None; not {given!r}.")
    return value


def size_of(content: Content) -> int:
    """Return the bytes of a content, of text in UTF-8."""
    if isinstance(content, bytes) or content.isascii():
        return len(content)
    return len(content.encode("utf-8", "surrogatepass"))


def check_size(content: Content, most: int | None) -> None:
    """
    Refuse an entry that is too large.

    :param content: Its content.
    :param most: The most bytes of an entry; None for any number.
    :raises EntryTooLargeError: If it has more.
    """
    if most is not None and 4 * len(content) > most:  # a character has four bytes at most
        size = len(content) if len(content) > most else size_of(content)
        if size > most:
            raise EntryTooLargeError(f"The entry has {size} bytes or more; the store takes at most {most}.")
