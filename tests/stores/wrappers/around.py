"""Each wrapper, around stores that a test makes."""

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

KEY_VARIABLE = "HAYBALER_TEST_KEY"
OLD_KEY_VARIABLE = "HAYBALER_TEST_OLD_KEY"
KEYS = {
    KEY_VARIABLE: "bmV3LW5ldy1uZXctbmV3LW5ldy1uZXctbmV3LW5ldzE=",
    OLD_KEY_VARIABLE: "b2xkLW9sZC1vbGQtb2xkLW9sZC1vbGQtb2xkLW9sZDE=",
}

# Makes a store for a name: wrappers with two parts get two different ones.
Make = Callable[[str], Any]


def encrypted(store: Any) -> EncryptedStore:
    return EncryptedStore(store, keys=[Secret.from_env_var(KEY_VARIABLE), Secret.from_env_var(OLD_KEY_VARIABLE)])


def retrying(store: Any) -> RetryingStore:
    return RetryingStore(store, attempts=2, wait_initial=0.001)


def breaking(store: Any) -> CircuitBreakerStore:
    """A circuit breaker that asks again at once, since a test of the kit does not wait."""
    return CircuitBreakerStore(store, failure_threshold=2, recovery_timeout=0)


WRAPPERS: dict[str, Callable[[Make], Any]] = {
    "retrying": lambda make: retrying(make("")),
    "circuit-breaker": lambda make: breaking(make("")),
    "fallback": lambda make: FallbackStore(make("1"), make("2")),
    "tiered": lambda make: TieredStore(make("1"), make("2"), threshold=100),
    "compressed": lambda make: CompressedStore(make(""), min_bytes=10),
    "encrypted": lambda make: encrypted(make("")),
    "content-addressed": lambda make: ContentAddressedStore(make(""), min_bytes=10),
}

# Sensible ones, from the outside in, each with every kind of what its order is about.
TOWERS: dict[str, Callable[[Make], Any]] = {
    "a remote store, private and small": lambda make: CompressedStore(
        encrypted(retrying(breaking(make(""))))
    ),
}
