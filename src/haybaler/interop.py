"""How haybaler calls objects that other people wrote, whichever colours they have."""

import inspect
import traceback
from collections.abc import Awaitable, Callable
from functools import partial
from types import CoroutineType
from typing import Any

from haystack.hooks.compaction import Compactor as HaystackCompactor

from haybaler.effects import Effect
from haybaler.errors import AsyncOnlyError
from haybaler.workers import run_in_worker


def method(target: object, name: str, *args: Any, **kwargs: Any) -> Effect[Any]:
    """
    Call a method that may exist as `name`, as `name_async`, or as a coroutine function called `name`.

    Asynchronous callers get the native form where there is one; otherwise the synchronous one runs in a worker thread.
    Synchronous callers of an object without a synchronous form get an `AsyncOnlyError`.

    :param target: The object.
    :param name: The method's name, without `_async`.
    :param args: Positional arguments.
    :param kwargs: Keyword arguments.
    :returns: The effect.
    """
    return Effect(
        lambda: synchronous(target, name)(*args, **kwargs), lambda: asynchronous(target, name)(*args, **kwargs)
    )


def optional_method(target: object, name: str) -> Effect[Any]:
    """
    Call a method without arguments if the object has it in any form, such as `warm_up` or `close`.

    :param target: The object.
    :param name: The method's name, without `_async`.
    :returns: The effect; without such a method it does nothing.
    """
    called = method(target, name)
    known = callable(getattr(target, name, None)) or _native(target, name) is not None
    return Effect(
        called.run if has_synchronous(target, name) else _nothing, called.run_async if known else _nothing_async
    )


def has_synchronous(target: object, name: str) -> bool:
    """
    Whether synchronous code can call a method.

    :param target: The object.
    :param name: The method's name.
    :returns: False if there is no such method, or only a coroutine function.
    """
    function = getattr(target, name, None)
    return callable(function) and not inspect.iscoroutinefunction(function)


def synchronous(target: object, name: str) -> Callable[..., Any]:
    """
    Return the synchronous form of a method, looked up once for any number of calls.

    :param target: The object.
    :param name: The method's name.
    :returns: A function.
    :raises AsyncOnlyError: If there is no such form, here or when it is called.
    """
    function = getattr(target, name, None)
    if not callable(function):
        raise _async_only(target, name)

    return partial(_called, function, target, name)


def _called(function: Callable[..., Any], target: object, name: str, /, *args: Any, **kwargs: Any) -> Any:
    result = function(*args, **kwargs)
    if isinstance(result, CoroutineType):
        result.close()
        raise _async_only(target, name)
    return result


def asynchronous(
    target: object, name: str, *, in_worker: Callable[[Callable[[], Any]], Awaitable[Any]] = run_in_worker
) -> Callable[..., Awaitable[Any]]:
    """
    Return the best form of a method for asynchronous callers, looked up once for any number of calls.

    :param target: The object.
    :param name: The method's name, without `_async`.
    :param in_worker: How a function is called in a worker thread.
    :returns: A coroutine function. It awaits the native form, or calls the synchronous one in a worker thread.
    """
    native = _native(target, name)
    if inspect.iscoroutinefunction(native):
        return native
    function = getattr(target, name) if native is None else native

    async def call(*args: Any, **kwargs: Any) -> Any:
        if native is None:
            result = await in_worker(partial(function, *args, **kwargs))
        else:
            result = function(*args, **kwargs)
        return await result if inspect.isawaitable(result) else result

    return call


def _async_only(target: object, name: str) -> AsyncOnlyError:
    return AsyncOnlyError(f"{type(target).__name__} has no synchronous `{name}`; run the Agent with `run_async`.")


def _native(target: object, name: str) -> Callable[..., Any] | None:
    """Return the asynchronous form of a method, unless it is only Haystack's stand-in that blocks the event loop."""
    native = getattr(target, f"{name}_async", None)
    if callable(native):
        return None if getattr(native, "__func__", None) is HaystackCompactor.compact_async else native
    function = getattr(target, name, None)
    return function if inspect.iscoroutinefunction(function) else None


def describe(error: BaseException) -> str:
    """
    Say what went wrong in somebody else's code, for a log line.

    :param error: The error.
    :returns: Its type and the place in the code; its text is left out, since it may hold the content of a result.
    """
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {frames[-1].name} ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}{place}"


def _nothing() -> None:
    return None


async def _nothing_async() -> None:
    return None
