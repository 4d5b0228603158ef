"""The store that compresses."""

import struct
from typing import Any

from haybaler.errors import EntryTooLargeError
from haybaler.stores.driver import Content
from haybaler.stores.protocol import AnyToolResultStore
from haybaler.stores.wrappers.coding import CodingStore
from haybaler.stores.wrappers.compression import algorithm_called, decompressed
from haybaler.stores.wrappers.forms import Form, Record
from haybaler.stores.wrappers.octets import content_of, corrupt, kind_of, pieces_of, size_of
from haybaler.stores.wrappers.settings import checked_count

_MARK = "hb:z1"
_HEADER = struct.Struct(">cQ")  # text or bytes, and how many bytes it is without compression


class CompressedStore(CodingStore):
    """
    Compresses entries above a size, and leaves others, and those that do not get smaller, as they are.

    ```python
    store = CompressedStore(RedisToolResultStore("redis://localhost:6379/0"))
    ```

    To read a page, the whole entry is fetched and decompressed. In a store that only holds text,
    compressed entries are base64, which makes them a third larger. How large an entry becomes tells something about its
    content, also where it is encrypted.

    :param store: The store. An encrypting one belongs inside, for what is encrypted cannot be compressed.
    :param algorithm: "zstd" (`pip install "haybaler[zstd]"` before Python 3.14) or "zlib"; None for zstd where it is
        installed, else zlib. Entries of either are read.
    :param level: How hard to try: 1 to 19 (zstd) or 1 to 9 (zlib); None for the algorithm's usual level.
    :param min_bytes: From this size in bytes on, entries are compressed.
    :param max_bytes: The largest entry that is written or read, in bytes without compression. A larger one is an
        `EntryTooLargeError`; so no entry takes more memory than that, whatever somebody put into the store.
    :raises ConfigurationError: If a parameter is not usable, or the algorithm is not installed.
    """

    store: Any

    def __init__(
        self,
        store: AnyToolResultStore,
        *,
        algorithm: str | None = None,
        level: int | None = None,
        min_bytes: int = 1024,
        max_bytes: int = 256 * 1024 * 1024,
    ) -> None:
        super().__init__(store)
        self._algorithm = algorithm_called(algorithm)
        if level is not None:
            checked_count("level", level, lowest=1, highest=self._algorithm.highest)
        checked_count("min_bytes", min_bytes, lowest=0)
        checked_count("max_bytes", max_bytes, lowest=1)
        self._level = self._algorithm.level if level is None else level
        self._min_bytes, self._max_bytes = min_bytes, max_bytes
        self._given = {"algorithm": algorithm, "level": level, "min_bytes": min_bytes, "max_bytes": max_bytes}
        self._form = Form(_MARK, binary=self.supports_binary_content)

    def _settings(self) -> dict[str, Any]:
        return dict(self._given)

    def _encoded(self, name: str, content: Content) -> Content:
        del name
        size = size_of(content)
        if size > self._max_bytes:
            raise self._too_large()
        if size >= self._min_bytes:
            compressed = self._algorithm.compressed(pieces_of(content), self._level)
            if sum(map(len, compressed)) < size:
                header = _HEADER.pack(kind_of(content), size)
                stored = self._form.of_record(self._algorithm.tag, [header, *compressed])
                if len(stored) < size:
                    return stored
        return self._form.of_content(content)

    def _decoded(self, name: str, stored: Content) -> Content:
        del name
        record = self._form.parse(stored)
        if not isinstance(record, Record):
            return record
        if len(record.body) < _HEADER.size:
            raise corrupt()
        kind, size = _HEADER.unpack_from(record.body)
        if size > self._max_bytes:
            raise self._too_large()
        return content_of(kind, decompressed(record.tag, record.body[_HEADER.size :], size))

    def _effort(self, stored: Content) -> int:
        head = self._form.beginning(stored, 1 + _HEADER.size)[1:]
        size: int = _HEADER.unpack(head)[1] if len(head) == _HEADER.size else 0
        return max(size, len(stored))

    def _too_large(self) -> EntryTooLargeError:
        return EntryTooLargeError(f"The entry is larger than {self._max_bytes} bytes, the most that is set up here.")
