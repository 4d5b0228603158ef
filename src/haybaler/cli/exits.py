"""What the command line's exit codes mean, and which error has which; pure."""

from enum import IntEnum

from haybaler.errors import (
    ConfigurationError,
    CorruptEntryError,
    HaybalerError,
    InvalidReferenceError,
    ReferenceNotFoundError,
    StoreConfigurationError,
    StoreUnavailableError,
)


class Exit(IntEnum):
    """How a command ended. docs/command-line.md has the same list."""

    OK = 0
    NOT_FOUND = 1
    """Nothing is stored under a reference, or it has expired."""
    USAGE = 2
    """The command, the URL or a reference is not usable."""
    UNAVAILABLE = 3
    """The store cannot be reached, did not answer in time, or is full; trying again later may help."""
    DAMAGED = 4
    """What is stored under a reference is not what was written."""
    REFUSED = 5
    """The store refuses the credentials, or has other rights or another set-up than are needed."""
    FAILED = 6
    """Anything else, for example a store that cannot do what it was asked."""
    UNCONFIRMED = 7
    """A question was answered with no; nothing was done."""
    INTERRUPTED = 130
    """It was interrupted from the keyboard; what was done until then stays done."""
    UNREAD = 141
    """Whoever read the output went away."""


# The first one that fits counts.
_OF_ERRORS: tuple[tuple[type[HaybalerError], Exit], ...] = (
    (ReferenceNotFoundError, Exit.NOT_FOUND),
    (InvalidReferenceError, Exit.USAGE),
    (ConfigurationError, Exit.USAGE),
    (CorruptEntryError, Exit.DAMAGED),
    (StoreUnavailableError, Exit.UNAVAILABLE),
    (StoreConfigurationError, Exit.REFUSED),
)


def exit_of(error: HaybalerError) -> Exit:
    """
    Return the exit code for an error.

    :param error: What ended the command.
    :returns: The code.
    """
    return next((code for kind, code in _OF_ERRORS if isinstance(error, kind)), Exit.FAILED)
