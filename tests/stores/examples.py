"""Small stores as their authors would write them: one with synchronous methods only, one with asynchronous ones."""

import asyncio
import os
from pathlib import Path
from secrets import token_hex
from typing import Any, Self
from urllib.parse import quote
from zlib import crc32

from haybaler.errors import CorruptEntryError, ReferenceNotFoundError
from haybaler.per_loop import PerLoop
from haybaler.stores.base import BaseToolResultStore
from haybaler.stores.driver import Content
from haybaler.stores.url import parse_store_url


class SyncOnlyStore(BaseToolResultStore):
    """One file for each entry: a checksum, a letter for the type, the content."""

    def __init__(self, root: str) -> None:
        super().__init__(location="sync:")
        self._root = Path(root)

    @classmethod
    def from_url(cls, url: str) -> Self:
        return cls(parse_store_url(url, schemes=("sync",), options={"size": int}).path)

    def file(self, reference: str) -> Path:
        return self._root / quote(self._path(reference), safe="")

    def _settings(self) -> dict[str, Any]:
        return {"root": str(self._root)}

    def _put(self, path: str, content: Content) -> None:
        file = self._root / quote(path, safe="")
        data = b"b" + content if isinstance(content, bytes) else b"t" + content.encode("utf-8", "surrogatepass")
        draft = file.with_name(f"#{os.urandom(8).hex()}")
        draft.write_bytes(crc32(data).to_bytes(4, "big") + data)
        draft.replace(file)

    def _get(self, path: str) -> Content:
        stored = (self._root / quote(path, safe="")).read_bytes()
        checksum, data = stored[:4], stored[4:]
        if crc32(data).to_bytes(4, "big") != checksum:
            raise CorruptEntryError("The checksum does not match.")
        return data[1:] if data[:1] == b"b" else data[1:].decode("utf-8", "surrogatepass")

    def _remove(self, path: str) -> None:
        (self._root / quote(path, safe="")).unlink(missing_ok=True)


class Server:
    """Stands for a remote server: every request takes two turns of the event loop that connected."""

    def __init__(self) -> None:
        self.entries: dict[str, str] = {}
        self.down = False

    def connect(self) -> "Connection":
        return Connection(self, asyncio.get_running_loop())


class Connection:
    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop

    async def entries(self) -> dict[str, str]:
        assert asyncio.get_running_loop() is self._loop
        await asyncio.sleep(0)
        if self._server.down:
            raise ConnectionRefusedError
        await asyncio.sleep(0)
        return self._server.entries


class AsyncOnlyStore(BaseToolResultStore):
    """Text on a remote server, through one connection for each event loop."""

    supports_binary_content = False

    def __init__(self, server: Server | None = None) -> None:
        super().__init__(location=f"server-{token_hex(4)}/")
        self.server = server or Server()
        self._connections = PerLoop(self.server.connect)

    async def _put_async(self, path: str, content: Content) -> None:
        assert isinstance(content, str)
        (await self._connections.get().entries())[path] = content

    async def _get_async(self, path: str) -> Content:
        try:
            return (await self._connections.get().entries())[path]
        except KeyError:
            raise ReferenceNotFoundError("Nothing is stored under the reference.") from None

    async def _remove_async(self, path: str) -> None:
        (await self._connections.get().entries()).pop(path, None)

    async def close_async(self) -> None:
        self._connections.pop()
