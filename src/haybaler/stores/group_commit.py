"""The bounds within which the writes of many callers share batches."""

from dataclasses import dataclass
from math import inf

from haybaler.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class GroupCommit:
    """
    Has a store write what many callers write at the same time in common batches.

    It pays where a batch costs less than its entries one by one. Nobody waits while fewer than `in_flight` batches are
    being written; what comes later gathers until one of them is done. Each event loop has these bounds for itself, and
    scopes share them.

    :param in_flight: The most batches that are written at once.
    :param entries: The most entries of a batch.
    :param size: The most bytes of a batch. Text counts as the most that its UTF-8 can have; an entry that is larger by
        itself is a batch by itself, and those have `in_flight` places of their own.
    :param undivided: For a store that divides large batches itself: how many batches' worth of entries and bytes one
        caller may hand over in one piece while no other is writing. It takes one of the `in_flight` places.
    :param wait: Seconds for which a caller waits for its turn; then what it still has to write is a
        `StoreTimeoutError`.
    :raises ConfigurationError: If one of them is not a positive number, or those before `wait` are not whole.
    """

    in_flight: int = 4
    entries: int = 128
    size: int = 4 * 1024 * 1024
    undivided: int = 1
    wait: float = 30.0

    def __post_init__(self) -> None:
        for name, kinds in (
            ("in_flight", int),
            ("entries", int),
            ("size", int),
            ("undivided", int),
            ("wait", (int, float)),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, kinds) or not 0 < value < inf:
                whole = "whole " if kinds is int else ""
                raise ConfigurationError(f"`{name}` of a GroupCommit must be a positive {whole}number, not {value!r}.")
