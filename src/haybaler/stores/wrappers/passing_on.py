"""Methods of a wrapper that exist where the wrapped stores have them."""

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, Protocol, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


class _Wrapping(Protocol):
    def lack_of(self, *names: str) -> str | None: ...


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
        lack = wrapper.lack_of(*self._names)
        if lack is not None:
            raise AttributeError(f"{owner.__name__} has no `{self._function.__name__}` here: {lack}")
        return self._function.__get__(wrapper, owner)
