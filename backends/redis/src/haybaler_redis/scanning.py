"""Looking for the keys of a scope, in small steps that hold up nobody else."""

from collections.abc import Sequence
from typing import Any

from haybaler.effects import Steps
from haybaler.stores.names import is_path
from haybaler_redis.asking import RAW, command, permitted

# Keys that the server looks at in one step, in well under a millisecond: nobody else waits longer for it.
SCAN_COUNT = 1_000

_GLOB = b"\\*?[]^"


def pattern_of(start: bytes) -> bytes:
    """
    Return the pattern for the keys that begin in one way, those of unfinished writes included.

    :param start: How the keys of entries begin.
    :returns: The pattern. A stage key may have one character before that (see `stage_key`).
    """
    return b"*" + b"".join(b"\\" + bytes([c]) if c in _GLOB else bytes([c]) for c in start) + b"*"


def scan(node: dict[str, Any], cursor: int, pattern: bytes, client: Any) -> Steps[tuple[int, list[bytes]]]:
    """
    Take one step.

    :param node: The options that lead to a node of a cluster.
    :param cursor: Where to go on; 0 to begin.
    :param pattern: Which keys to return.
    :param client: The client.
    :returns: Where to go on, 0 at the end, and the keys that were found, some of them perhaps not for the first time.
    """
    scanned = ("SCAN", cursor, "MATCH", pattern, "COUNT", SCAN_COUNT)
    following, keys = yield from command(client, *scanned, **RAW, **node)
    return int(following), list(keys)


def process_of(node: dict[str, Any], client: Any) -> Steps[object]:
    """Return what names the server's process. A cursor means nothing to another one, which may pass over many keys."""
    info = yield from permitted(client, "INFO", "server", **node)
    return info.get("run_id") if isinstance(info, dict) else None


def sorted_out(keys: Sequence[bytes], start: bytes) -> tuple[list[bytes], list[bytes]]:
    """
    Tell entries from what is staged for one, and both from what only looks alike.

    :param keys: What a pattern found.
    :param start: How the keys of entries begin.
    :returns: The keys of entries that begin so, and those under which a part of such an entry is staged.
    """
    entries, staged = [], []
    for key in keys:
        lead, found, rest = key.partition(start)
        # A longer prefix of another store has a colon in the rest; no path has one.
        if not found or b":" in rest:
            continue
        if b"#" in rest and lead in {b"", b"{"}:
            staged.append(key)
        elif not lead:
            entries.append(key)
    return entries, staged


def path_in(key: bytes, prefix: bytes) -> str | None:
    """
    Return the path of an entry.

    :param key: Its key.
    :param prefix: What stands before the path in the keys of a store.
    :returns: The path; None if no store of haybaler's made it.
    """
    path = key.removeprefix(prefix).decode("ascii", "replace")
    return path if is_path(path) else None
