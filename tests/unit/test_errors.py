import errno
import socket
from typing import Any

import pytest

from haybaler import errors
from haybaler.errors import (
    CorruptEntryError,
    HaybalerError,
    InvalidReferenceError,
    ReferenceNotFoundError,
    StoreError,
    StoreFullError,
    StoreUnavailableError,
    store_error,
)


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (errors.ConfigurationError, ValueError),
        (errors.NotSerializableError, TypeError),
        (StoreError, RuntimeError),
        (StoreUnavailableError, ConnectionError),
        (StoreFullError, StoreUnavailableError),
        (ReferenceNotFoundError, LookupError),
        (InvalidReferenceError, ValueError),
        (CorruptEntryError, ValueError),
        (errors.AsyncOnlyStoreError, NotImplementedError),
        (errors.StoreCircuitOpenError, StoreUnavailableError),
    ],
)
def test_each_error_is_also_the_nearest_builtin(kind: type[Exception], builtin: type[Exception]) -> None:
    assert issubclass(kind, HaybalerError)
    with pytest.raises(builtin, match=r"^text$"):
        raise kind("text")


def test_absence_damage_and_unavailability_are_never_confused() -> None:
    kinds = (ReferenceNotFoundError, InvalidReferenceError, CorruptEntryError, StoreUnavailableError)
    assert not any(issubclass(one, other) for one in kinds for other in kinds if one is not other)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file", "/secret/path"), ReferenceNotFoundError),
        (OSError(errno.ENOSPC, "No space left"), StoreFullError),
        (OSError(errno.EDQUOT, "Quota exceeded"), StoreFullError),
        (PermissionError(errno.EACCES, "Permission denied", "/secret/path"), StoreUnavailableError),
        (NotADirectoryError(errno.ENOTDIR, "Not a directory"), StoreUnavailableError),
        (ConnectionRefusedError(), StoreUnavailableError),
        (TimeoutError(), StoreUnavailableError),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), StoreUnavailableError),
        (KeyError("secret"), StoreError),
        (ValueError("secret"), StoreError),
        (ExceptionGroup("secret", [OSError()]), StoreError),
    ],
)
def test_a_foreign_error_becomes_the_member_that_fits(error: Exception, kind: type[StoreError]) -> None:
    mapped = store_error(error, action="read an entry")
    assert type(mapped) is kind
    assert str(mapped).startswith("Could not read an entry: ")
    assert "secret" not in str(mapped)


@pytest.mark.parametrize("kind", [StoreError, CorruptEntryError, StoreUnavailableError])
def test_an_error_of_the_tree_passes_through(kind: type[StoreError]) -> None:
    error: Any = kind("text")
    assert store_error(error, action="read an entry") is error


def test_a_missing_folder_is_no_missing_entry_when_writing() -> None:
    error = FileNotFoundError(errno.ENOENT, "No such file or directory")
    mapped = store_error(error, action="write an entry", missing_means_absent=False)
    assert type(mapped) is StoreUnavailableError


def test_an_outage_is_a_store_that_was_asked_and_did_not_answer() -> None:
    assert all(map(errors.is_outage, (StoreUnavailableError(), errors.StoreTimeoutError())))
    others = (StoreFullError(), errors.StoreCircuitOpenError(), ReferenceNotFoundError(), ConnectionError(), "a", None)
    assert not any(map(errors.is_outage, others))


def test_what_is_raised_inside_becomes_a_member_of_the_tree() -> None:
    with pytest.raises(StoreUnavailableError) as caught, errors.mapped("open the store"):
        raise ConnectionRefusedError
    assert isinstance(caught.value.__cause__, ConnectionRefusedError)
    own = CorruptEntryError("damaged")
    with pytest.raises(CorruptEntryError) as caught_own, errors.mapped("open the store"):
        raise own
    assert caught_own.value is own
    with pytest.raises(KeyboardInterrupt), errors.mapped("open the store"):
        raise KeyboardInterrupt
