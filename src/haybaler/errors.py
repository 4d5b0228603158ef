"""
The tree of haybaler's errors, and the one place where operating-system errors are mapped into it.

Every error derives from `HaybalerError` and from the nearest builtin, so that callers may catch either.
"""

import copy
import errno
from collections.abc import Iterator
from contextlib import contextmanager


class HaybalerError(Exception):
    """Root of every error that haybaler raises."""


class ConfigurationError(HaybalerError, ValueError):
    """A constructor argument or a serialized form is not usable."""


class NotSerializableError(HaybalerError, TypeError):
    """An object that takes part in serialization has no usable `to_dict`."""


class AsyncOnlyError(HaybalerError, NotImplementedError):
    """A synchronous call reached an object that only has asynchronous methods."""


class ToolArgumentError(HaybalerError, ValueError):
    """A model called a tool with arguments that cannot be used; the text tells the model what to do instead."""


class StoreError(HaybalerError, RuntimeError):
    """A store could not do what it was asked; the root of every error of a store."""


class StoreUnavailableError(StoreError, ConnectionError):
    """The store cannot be reached or cannot take anything at the moment; trying again later may help."""


class StoreTimeoutError(StoreUnavailableError, TimeoutError):
    """The store did not answer in time. Whether it has done what it was asked is not known."""


class StoreFullError(StoreUnavailableError):
    """The store answers, but has no room for the entry (disk full, quota, memory limit)."""


class ScopeFullError(StoreFullError):
    """The scope holds as many bytes as it may; other scopes of the store are not affected. Deleting makes room."""


class StoreCircuitOpenError(StoreUnavailableError):
    """The store failed again and again lately, so it was not asked at all. Not retried."""


class StoreConfigurationError(StoreError, PermissionError):
    """The store refuses what it was set up with: credentials, rights, certificates, the kind of server. Not retried."""


class EntryTooLargeError(StoreError, ValueError):
    """The entry is larger than the store takes; its neighbours in a batch are not affected."""


class ReferenceNotFoundError(StoreError, LookupError):
    """The reference belongs to this store and scope, but nothing is stored under it (any more)."""


class InvalidReferenceError(StoreError, ValueError):
    """The reference is not one of this store and scope: it is malformed, or points somewhere else."""


class CorruptEntryError(StoreError, ValueError):
    """Something is stored under the reference, but it is not what was written."""


class AsyncOnlyStoreError(StoreError, AsyncOnlyError):
    """A synchronous call reached a store that only has asynchronous methods."""


_LONGEST_CHAIN = 10  # of causes, as far as they are copied
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM})


def store_error(error: BaseException, *, action: str, missing_means_absent: bool = True) -> StoreError:
    """
    Map any error of a backend to the tree. The caller raises the result `from error`.

    The text names the action and the kind of error, never the content of an entry.

    :param error: What the backend raised.
    :param action: What was being done, as a phrase that completes "Could not ...", for example "write an entry".
    :param missing_means_absent: Whether a `FileNotFoundError` means that there is no such entry. False for writes,
        where it means that the place for entries is gone.
    :returns: `error` itself when it already is a `StoreError`, otherwise the member of the tree that fits.
    """
    if isinstance(error, StoreError):
        return error
    if isinstance(error, AsyncOnlyError):
        return AsyncOnlyStoreError(str(error))
    reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
    text = f"Could not {action}: {reason}."
    if isinstance(error, FileNotFoundError) and missing_means_absent:
        return ReferenceNotFoundError(text)
    if isinstance(error, OSError) and error.errno in _FULL:
        return StoreFullError(text)
    if isinstance(error, (OSError, TimeoutError)):
        return StoreUnavailableError(text)
    return StoreError(text)


def detached(error: StoreError) -> StoreError:
    """
    Return a copy of an error for another task, since two tasks must not raise the same object.

    :param error: The error.
    :returns: The copy, with copies of its causes. They have no frames: these would show the data of another caller.
    """
    twin = _copied(error, _LONGEST_CHAIN)
    return twin if isinstance(twin, StoreError) else StoreError(str(error))


def _copied(error: BaseException | None, links: int) -> BaseException | None:
    if error is None or not links or isinstance(error, BaseExceptionGroup):  # the parts of a group have frames, too
        return None
    try:
        twin = copy.copy(error)
    except Exception:  # noqa: BLE001 - somebody else's, with a constructor of its own
        return None
    if hasattr(error, "__notes__"):
        twin.__notes__ = [*error.__notes__]
    if error.__cause__ is not None:
        twin.__cause__ = _copied(error.__cause__, links - 1)
    elif not error.__suppress_context__:
        twin.__context__ = _copied(error.__context__, links - 1)
    return twin


def is_outage(outcome: object) -> bool:
    """
    Whether the store was asked and could not be reached, or did not answer in time.

    :param outcome: What a store raised or returned.
    :returns: False for a store that answers but is full, and for one that was not asked since it failed lately.
    """
    answered = (StoreFullError, StoreCircuitOpenError)
    return isinstance(outcome, StoreUnavailableError) and not isinstance(outcome, answered)


@contextmanager
def mapped(action: str) -> Iterator[None]:
    """
    Map what is raised inside to the tree, with its cause chained.

    :param action: What is being done, as for `store_error`.
    :raises StoreError: In place of any other error.
    """
    try:
        yield
    except StoreError:
        raise
    except Exception as error:
        raise store_error(error, action=action) from error
