"""Methods of a wrapper that exist where the wrapped stores have them."""

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, Protocol, TypeVar, cast

from haybaler.stores.outcomes import has

F = TypeVar("F", bound=Callable[..., Any])


class _Wrapping(Protocol):
    @property
    def wrapped(self) -> list[Any]: ...


def where_stores_have(*names: str) -> Callable[[F], F]:
    """
    Make a method exist only on wrappers whose wrapped stores all have some methods.

    Whoever uses a store asks it what it can do (`hasattr`). A wrapper around a store that cannot tell a reference
    beforehand, or delete, must not claim that it can.

    :param names: The methods' names, without `_async`.
    :returns: A decorator.
    """

    def decorate(function: F) -> F:
        return cast("F", _Method(function, names))

    return decorate


class _Method:
    def __init__(self, function: Callable[..., Any], names: tuple[str, ...]) -> None:
        self._function = function
        self._names = names
        update_wrapper(cast("Any", self), function)

    def __get__(self, wrapper: _Wrapping | None, owner: type) -> Any:
        if wrapper is None:
            return self._function
        for store in wrapper.wrapped:
            for name in self._names:
                if not has(store, name):
                    raise AttributeError(f"{type(store).__name__}, which {owner.__name__} wraps, has no `{name}`.")
        return self._function.__get__(wrapper, owner)
