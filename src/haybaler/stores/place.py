"""Where a store's entries are: its location, its scope, and the references that lead there. Pure."""

import copy
from typing import Self

from haybaler.errors import ConfigurationError, InvalidReferenceError
from haybaler.stores.names import MAX_NAME, encode_name, encode_scope, is_name, is_scope_name

MAX_REFERENCE = 512


class StorePlace:
    """What of a store depends on nothing but its location and scope."""

    _location: str
    _scope: tuple[str, ...]

    def _enter_scope(self, names: tuple[str, ...]) -> None:
        self._scope = names
        self._scope_path = "".join(f"{name}/" for name in names)
        self._prefix = self._location + self._scope_path
        if len(self._prefix) + MAX_NAME > MAX_REFERENCE or not self._prefix.isprintable():
            raise ConfigurationError(
                f"A reference must be printable and at most {MAX_REFERENCE} characters long; here {len(self._prefix)} "
                f"would stand before the name, which needs {MAX_NAME}. Use a shorter location or scope."
            )

    def reference(self, key: str) -> str:
        """As `ToolResultStore.reference`: pure, known before anything is written."""
        return self._prefix + encode_name(key)

    def _path(self, reference: object) -> str:
        """
        Return the path behind what a caller, perhaps a language model, gave as a reference.

        :param reference: The reference.
        :returns: The path.
        :raises InvalidReferenceError: If it is not exactly a reference of this store and scope.
        """
        if not (
            isinstance(reference, str)
            and reference.startswith(self._prefix)
            and is_name(reference.removeprefix(self._prefix))
        ):
            raise _foreign()
        return reference.removeprefix(self._location)

    def scoped(self, scope: str) -> Self:
        """As `ToolResultStore.scoped`: a store of its own inside this one, sharing its clients."""
        if not isinstance(scope, str):
            raise ConfigurationError(f"A scope is a string, not {type(scope).__name__}.")
        return self._inside(encode_scope(scope))

    def scope_of(self, reference: object) -> Self:
        """
        Return the store of the scope to which a reference belongs: this one, or one inside it.

        For whoever looks after a store, and has its references from `list`. A run has the store of its own scope, from
        which no reference leads out.

        :param reference: A reference of this store, or of a scope inside it.
        :returns: The store that reads and deletes it.
        :raises InvalidReferenceError: If it is none.
        """
        if not isinstance(reference, str) or not reference.startswith(self._prefix):
            raise _foreign()
        *scopes, name = reference.removeprefix(self._prefix).split("/")
        if not is_name(name) or not all(map(is_scope_name, scopes)):
            raise _foreign()
        try:
            return self._inside(tuple(scopes))
        except ConfigurationError as error:  # longer than any that this store gives
            raise _foreign() from error

    def _inside(self, names: tuple[str, ...]) -> Self:
        inner = copy.copy(self)
        inner._enter_scope((*self._scope, *names))  # noqa: SLF001 - its own kind
        return inner


def _foreign() -> InvalidReferenceError:
    return InvalidReferenceError("The reference does not belong to this store and scope.")
