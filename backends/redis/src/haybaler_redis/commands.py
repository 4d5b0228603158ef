"""The commands of a store, as values; pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

# One argument in two pieces: header and content of a record, which is copied once less that way.
Pieces = tuple[bytes, bytes]
Argument = bytes | int | str | Pieces

# One round trip. Longer ones would let the loop stand still while their replies are taken apart, or while the bytes
# are copied into the socket's buffer; and for more bytes, memory goes back to the system and forth with each one.
FLUSH_COMMANDS = 128
FLUSH_BYTES = 2 * 1024 * 1024
# Keys of one command that is answered by a single reply.
BULK_KEYS = 1000


@dataclass(frozen=True, slots=True)
class Command:
    """
    One command.

    :param key: The key that decides which node of a cluster is asked; for a command of several keys the first one.
    :param arguments: Its name and its arguments. Left out of the `repr`, for they hold the content of entries.
    """

    key: bytes
    arguments: tuple[Argument, ...] = field(repr=False)

    def in_one_piece(self) -> tuple[bytes | int | str, ...]:
        """Return the arguments as any client takes them."""
        return tuple([b"".join(argument) if isinstance(argument, tuple) else argument for argument in self.arguments])


def set_one(key: bytes, record: Pieces, ttl: int | None) -> Command:
    """Set a key, and its expiry in the same command. `ttl` is in milliseconds, here and below."""
    return Command(key, ("SET", key, record) if ttl is None else ("SET", key, record, "PX", ttl))


def set_if_absent(key: bytes, record: Pieces, ttl: int) -> Command:
    """Set a key with an expiry, unless it is there; then nothing is changed."""
    return Command(key, ("SET", key, record, "NX", "PX", ttl))


def set_many(records: Sequence[tuple[bytes, Pieces]], ttl: int | None) -> Command:
    """Set many keys, and their expiry, in one command; on one node only, and with a ttl not on every server."""
    pairs: tuple[bytes | Pieces, ...] = tuple(chain.from_iterable(records))
    if ttl is None:
        return Command(records[0][0], ("MSET", *pairs))
    return Command(records[0][0], ("MSETEX", len(records), *pairs, "PX", ttl))


def set_range(key: bytes, start: int, piece: bytes) -> Command:
    """Overwrite a part of a value, which grows if need be; the reply is its length."""
    return Command(key, ("SETRANGE", key, start, piece))


def rename(key: bytes, new_key: bytes) -> Command:
    """Replace one key by another, in one step."""
    return Command(key, ("RENAME", key, new_key))


def get_range(key: bytes, start: int, size: int) -> Command:
    """Read `size` bytes of a value from `start`; fewer where it ends, none where there is no value."""
    return Command(key, ("GETRANGE", key, start, start + size - 1))


def size_of(key: bytes) -> Command:
    """Tell the size of a value in bytes."""
    return Command(key, ("STRLEN", key))


def expire(key: bytes, ttl: int | None) -> Command:
    """Let a key live for `ttl` from now, or for ever."""
    return Command(key, ("PERSIST", key) if ttl is None else ("PEXPIRE", key, ttl))


def unlink(keys: Sequence[bytes]) -> Command:
    """Remove keys; their memory is freed in the background."""
    return Command(keys[0], ("UNLINK", *keys))


def split_flushes(sizes: Sequence[int], *, most: int) -> Iterator[slice]:
    """
    Cut a batch into parts of at most `most` entries and `FLUSH_BYTES`, or of one larger entry.

    :param sizes: The sizes of the entries in bytes.
    :param most: The most entries of one part.
    :returns: Slices of the batch, none empty, in order and without gaps.
    """
    if 0 < len(sizes) <= most and sum(sizes) <= FLUSH_BYTES:
        yield slice(0, len(sizes))
        return
    start, held = 0, 0
    for index, size in enumerate(sizes):
        if index > start and (index - start >= most or held + size > FLUSH_BYTES):
            yield slice(start, index)
            start, held = index, 0
        held += size
    if start < len(sizes):
        yield slice(start, len(sizes))
