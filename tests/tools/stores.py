"""Stores as other people write them, and stores with something wrong."""

from typing import Any

from haystack.core.serialization import default_from_dict, default_to_dict


class SyncStore:
    """Only `read`, as in Haystack's own documentation."""

    def __init__(self, **contents: Any) -> None:
        self.contents = contents

    def read(self, reference: str) -> Any:
        return self.contents[reference]


class AsyncStore(SyncStore):
    """Only a coroutine function called `read`."""

    async def read(self, reference: str) -> Any:
        return self.contents[reference]


class NativeStore(SyncStore):
    """A `read` that must not be used by asynchronous callers, and a native form."""

    def read(self, reference: str) -> Any:
        raise AssertionError(reference)

    async def read_async(self, reference: str) -> Any:
        return self.contents[reference]


class FailingStore:
    """Every read raises the same error."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def read(self, reference: str) -> Any:
        raise self.error


class SettingsStore(SyncStore):
    """Can be serialized."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def to_dict(self) -> dict[str, Any]:
        return default_to_dict(self, name=self.name)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "SettingsStore":
        return default_from_dict(cls, data)


class LifecycleStore:
    """Counts what is called, in either colour."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def warm_up(self) -> None:
        self.calls.append("warm_up")

    async def warm_up_async(self) -> None:
        self.calls.append("warm_up_async")

    def close(self) -> None:
        self.calls.append("close")
