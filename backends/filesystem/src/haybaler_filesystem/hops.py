"""How a batch is cut into worker hops; pure."""

from collections.abc import Iterator, Sequence

HOP_BYTES = 8 * 1024 * 1024  # a few milliseconds of writing, so that other callers get their turn
HOP_ENTRIES = 256


def split_hops(sizes: Sequence[int], *, at_least: int = 1) -> Iterator[slice]:
    """
    Cut a batch into hops of at most `HOP_ENTRIES` entries and `HOP_BYTES`, or of one larger entry.

    :param sizes: The sizes of the entries, roughly in bytes.
    :param at_least: How many hops to make, where there are enough entries.
    :returns: Slices of the batch, none empty, in order and without gaps.
    """
    most = min(HOP_ENTRIES, -(-len(sizes) // at_least))
    start, held = 0, 0
    for index, size in enumerate(sizes):
        if index > start and (index - start >= most or held + size > HOP_BYTES):
            yield slice(start, index)
            start, held = index, 0
        held += size
    if start < len(sizes):
        yield slice(start, len(sizes))
