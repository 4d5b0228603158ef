"""Compressing, and decompressing within bounds, with the algorithms that are installed."""

import importlib
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from haybaler.errors import ConfigurationError, StoreConfigurationError
from haybaler.slices import in_slices
from haybaler.stores.wrappers.octets import PIECE, Octets, corrupt, cut

# Python has it since 3.14. Before, the extra `zstd` brings the same module under another name.
_ZSTD_MODULE = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
# Up to level 19, zstd refers back by at most 8 MiB. No more is allowed for decompressing, which needs that memory.
_ZSTD_WINDOW_LOG = 23


@dataclass(frozen=True, slots=True)
class Algorithm:
    """
    A way of compressing.

    :param name: Its name.
    :param tag: One byte that stands for it.
    :param level: How hard it tries unless it is told, from 1 to `highest`.
    :param highest: The highest level.
    :param compressor: Makes an object that compresses at a level, piece by piece.
    :param pieces: Decompresses bytes piece by piece, at most `PIECE` bytes each.
    """

    name: str
    tag: bytes
    level: int
    highest: int
    compressor: Callable[[int], Any]
    pieces: Callable[[Octets], Iterator[bytes]]

    def compressed(self, pieces: Iterable[Octets], level: int) -> list[bytes]:
        """
        Compress bytes.

        :param pieces: The bytes.
        :param level: How hard to try.
        :returns: What they become, in pieces.
        """
        compressor = self.compressor(level)
        made = [compressor.compress(piece) for piece in pieces]
        return [*made, compressor.flush()]


def algorithm_called(name: str | None) -> Algorithm:
    """
    Return an algorithm.

    :param name: "zstd" or "zlib"; None for zstd where it is installed, else zlib.
    :returns: The algorithm.
    :raises ConfigurationError: If there is none of that name, or it is not installed.
    """
    if name == ZLIB.name:
        return ZLIB
    if name not in {ZSTD.name, None}:
        raise ConfigurationError(f'`algorithm` must be "zstd" or "zlib", not {name!r}.')
    try:
        _zstd()
    except ImportError as error:
        if name is None:
            return ZLIB
        raise ConfigurationError("zstd is not installed; install haybaler[zstd].") from error
    return ZSTD


def decompressed(tag: bytes, data: Octets, size: int) -> Iterator[bytes]:
    """
    Decompress bytes of a known size. One piece more than that is the most that is ever in memory.

    :param tag: The tag of the algorithm.
    :param data: What it made.
    :param size: How many bytes it was made of.
    :returns: Those bytes, in pieces.
    :raises CorruptEntryError: If it was not made of so many bytes, or is damaged.
    :raises StoreConfigurationError: If the algorithm is not installed.
    """
    algorithm = next((known for known in (ZSTD, ZLIB) if known.tag == tag), None)
    if algorithm is None:
        raise corrupt()
    remaining = size
    for piece in in_slices(algorithm.pieces(data)):
        remaining -= len(piece)
        if remaining < 0:
            raise corrupt()
        yield piece
    if remaining:
        raise corrupt()


def _zlib_pieces(data: Octets) -> Iterator[bytes]:
    decompressor = zlib.decompressobj()
    try:
        for chunk in cut(data):
            yield decompressor.decompress(chunk, PIECE)
            while decompressor.unconsumed_tail:
                yield decompressor.decompress(decompressor.unconsumed_tail, PIECE)
        while not decompressor.eof:
            piece = decompressor.decompress(b"", PIECE)
            if not piece:
                raise corrupt()
            yield piece
    except zlib.error as error:
        raise corrupt() from error
    if decompressor.unused_data:
        raise corrupt()


def _zstd_compressor(level: int) -> Any:
    zstd = _zstd()
    parameter = zstd.CompressionParameter
    return zstd.ZstdCompressor(options={parameter.compression_level: level, parameter.checksum_flag: 1})


def _zstd_pieces(data: Octets) -> Iterator[bytes]:
    try:
        zstd = _zstd()
    except ImportError as error:
        raise StoreConfigurationError("The entry is compressed with zstd; install haybaler[zstd].") from error
    decompressor = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG})
    try:
        for chunk in cut(data):
            yield decompressor.decompress(chunk, PIECE)
            while not decompressor.needs_input and not decompressor.eof:
                yield decompressor.decompress(b"", PIECE)
    except (zstd.ZstdError, EOFError) as error:
        raise corrupt() from error
    if not decompressor.eof or decompressor.unused_data:
        raise corrupt()


def _zstd() -> Any:
    return importlib.import_module(_ZSTD_MODULE)


ZSTD = Algorithm("zstd", b"s", 3, 19, _zstd_compressor, _zstd_pieces)
ZLIB = Algorithm("zlib", b"z", 6, 9, zlib.compressobj, _zlib_pieces)
