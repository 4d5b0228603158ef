"""Each wrapper, and towers of them, around stores that a test makes."""

import threading
from collections.abc import Callable
from typing import Any

from haystack.utils import Secret

from haybaler import (
    CircuitBreakerStore,
    CompressedStore,
    ContentAddressedStore,
    EncryptedStore,
    FallbackStore,
    RetryingStore,
    TieredStore,
)
from haybaler.errors import ReferenceNotFoundError
from haybaler.stores.wrappers.holds import Hold

NEW_KEY, OLD_KEY = "HAYBALER_TEST_NEW_KEY", "HAYBALER_TEST_OLD_KEY"
ENVIRONMENT = {
    NEW_KEY: "bmV3LW5ldy1uZXctbmV3LW5ldy1uZXctbmV3LW5ldzE=",
    OLD_KEY: "b2xkLW9sZC1vbGQtb2xkLW9sZC1vbGQtb2xkLW9sZDE=",
    "HAYSTACK_DESERIALIZATION_ALLOWLIST": "haybaler*",
}

# Makes a store for a name: a wrapper with two parts gets two different ones.
Make = Callable[[str], Any]
Build = Callable[[Make], Any]


def encrypted(store: Any) -> EncryptedStore:
    return EncryptedStore(store, keys=[Secret.from_env_var(NEW_KEY), Secret.from_env_var(OLD_KEY)])


def retrying(store: Any) -> RetryingStore:
    return RetryingStore(store, attempts=2, wait_initial=0.001)


def breaking(store: Any) -> CircuitBreakerStore:
    """
    A circuit breaker that hardly ever opens, and asks again at once, since the kit does not wait.

    Writes to files whose scope is being removed fail as those to a store that is away do, several at once.
    """
    return CircuitBreakerStore(store, failure_threshold=20, recovery_timeout=0)


# Of the kit's contents, about half are above these sizes.
WRAPPERS: dict[str, Build] = {
    "retrying": lambda make: retrying(make("")),
    "circuit-breaker": lambda make: breaking(make("")),
    "fallback": lambda make: FallbackStore(make("-1"), make("-2")),
    "tiered": lambda make: TieredStore(make("-1"), make("-2"), threshold=9),
    "compressed": lambda make: CompressedStore(make(""), min_bytes=10),
    "encrypted": lambda make: encrypted(make("")),
    "content-addressed": lambda make: ContentAddressedStore(make(""), min_bytes=10),
}
# Those that store each entry once, and as it is.
PASSING_ON = [WRAPPERS[name] for name in ("retrying", "circuit-breaker", "fallback")]
TOWERS: dict[str, Build] = {
    "remote": lambda make: CompressedStore(encrypted(retrying(breaking(make("")))), min_bytes=10),
    "inside out": lambda make: encrypted(CompressedStore(retrying(breaking(make(""))), min_bytes=10)),
    "two places": lambda make: FallbackStore(
        breaking(TieredStore(make("-1"), encrypted(make("-2")), threshold=9)), CompressedStore(make("-3"), min_bytes=10)
    ),
    "shared": lambda make: ContentAddressedStore(
        CompressedStore(TieredStore(retrying(make("-1")), make("-2"), threshold=20), min_bytes=10), min_bytes=10
    ),
}


def inside(store: Any, reference: str) -> tuple[Any, str]:
    """
    Return where the content of an entry stands.

    :param store: A wrapper, or any other store.
    :param reference: The entry's reference.
    :returns: The store at the bottom that holds it, and its reference there.
    """
    while True:
        match store:
            case FallbackStore():
                store = store.primary
            case TieredStore():
                large = store.large.reference(reference)
                store, reference = (store.large, large) if _is_there(store.large, large) else (store.small, reference)
            case ContentAddressedStore():
                entry = store._entry(store.store.read(reference))
                store, reference = (
                    store.store,
                    (store.store.reference(entry.content_key) if isinstance(entry, Hold) else reference),
                )
            case RetryingStore() | CircuitBreakerStore() | CompressedStore() | EncryptedStore():
                store = store.store
            case _:
                return store, reference


def _is_there(store: Any, reference: str) -> bool:
    try:
        store.read(reference)
    except ReferenceNotFoundError:
        return False
    return True


def noting_threads(kind: Any, threads: list[str]) -> Any:
    """
    Return a class of stores that notes in which threads contents are encoded and decoded.

    :param kind: `CompressedStore` or `EncryptedStore`.
    :param threads: Where the names go, in order.
    :returns: The class.
    """

    class Spied(kind):  # type: ignore[misc]
        def _encoded(self, name: str, content: Any) -> Any:
            threads.append(threading.current_thread().name)
            return super()._encoded(name, content)

        def _decoded(self, name: str, stored: Any) -> Any:
            threads.append(threading.current_thread().name)
            return super()._decoded(name, stored)

    return Spied
