"""The sentence that a model gets when something cannot be read back; what it says is what the model can do next."""

import errno
import logging

from haybaler.errors import (
    AsyncOnlyError,
    CorruptEntryError,
    InvalidReferenceError,
    ReferenceNotFoundError,
    StoreError,
    StoreUnavailableError,
    ToolArgumentError,
)
from haybaler.readback.arguments import quoted

logger = logging.getLogger(__name__)

NO_STORE = (
    "Stored results cannot be read back, because this run has no store. "
    "Run the tool again that gave the result, if you still need it."
)

_AGAIN = "Run the tool again if you still need it."
_FOREIGN = "{0} is not a reference of this run's store. Give a reference exactly as it stands in the conversation."
# The first row that fits, most specific first. Stores of other people raise builtin errors.
_SENTENCES: tuple[tuple[tuple[type[Exception], ...], str], ...] = (
    ((AsyncOnlyError,), "The store can only be read in an asynchronous run. Go on without {0}."),
    ((ReferenceNotFoundError,), f"Nothing is stored under {{0}} any more. {_AGAIN}"),
    ((InvalidReferenceError,), _FOREIGN),
    ((CorruptEntryError, UnicodeDecodeError), f"What is stored under {{0}} is damaged. {_AGAIN}"),
    ((StoreUnavailableError,), "The store cannot be reached at the moment, so {0} cannot be read. Try again later."),
    ((StoreError,), f"{{0}} cannot be read. {_AGAIN}"),
    ((FileNotFoundError, LookupError), f"Nothing is stored under {{0}} any more. {_AGAIN}"),
    ((ValueError, IsADirectoryError, NotADirectoryError), _FOREIGN),
    ((OSError,), "The store cannot be reached at the moment, so {0} cannot be read. Try again later."),
    ((Exception,), f"{{0}} cannot be read. {_AGAIN}"),
)


def refusal(error: Exception, *, tool: str, reference: object, store: object) -> str:
    """
    Return the sentence for an error, and log a warning unless the model's arguments are the reason.

    :param error: What was raised.
    :param tool: The tool's name.
    :param reference: The reference that the model gave.
    :param store: The store.
    :returns: The sentence. Nothing of the error's own text is in it, unless it was written for the model.
    """
    if isinstance(error, ToolArgumentError):
        return str(error)
    sentence = _FOREIGN if _names_no_file(error) else next(s for kinds, s in _SENTENCES if isinstance(error, kinds))
    fields = {"tool": tool, "store": type(store).__name__, "error": type(error).__name__}
    if sentence is not _FOREIGN:  # whatever a model made up is not logged
        fields["reference"] = quoted(reference)
    logger.warning("A stored tool result could not be read back.", extra=fields)
    return sentence.format(quoted(reference))


def _names_no_file(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in {errno.ENAMETOOLONG, errno.EINVAL}
