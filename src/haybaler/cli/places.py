"""From what stands on the command line to an open store."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from haybaler.errors import ConfigurationError
from haybaler.stores.registry import store_from_url

_VARIABLE = "env:"


@contextmanager
def place_of(url: str, scope: str) -> Iterator[Any]:
    """
    Open a scope of a store.

    :param url: The store's URL, or `env:` and the name of an environment variable that has it.
    :param scope: The scope; empty for the whole store.
    :returns: The store of the scope, while it is open. It may be anybody's.
    :raises ConfigurationError: If the URL is not usable.
    """
    store: Any = store_from_url(_resolved(url))
    with store.scoped(scope) if scope else store as place:
        yield place


def _resolved(url: str) -> str:
    if not url.startswith(_VARIABLE):
        return url
    found = os.environ.get(url.removeprefix(_VARIABLE))
    if not found:
        raise ConfigurationError("The environment variable that should have the URL of the store is not set.")
    return found
