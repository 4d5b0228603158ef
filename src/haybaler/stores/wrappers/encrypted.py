"""The store that encrypts."""

from collections.abc import Sequence
from secrets import token_hex
from typing import Any, Self

from haystack.utils import Secret

from haybaler.effects import Steps
from haybaler.errors import InvalidReferenceError, NotSerializableError, StoreError
from haybaler.stores.driver import Content
from haybaler.stores.outcomes import Outcome
from haybaler.stores.protocol import AnyToolResultStore
from haybaler.stores.wrappers.coding import CodingStore
from haybaler.stores.wrappers.encryption import KeyRing, new_key
from haybaler.stores.wrappers.forms import Form, Record
from haybaler.stores.wrappers.octets import corrupt

_MARK = "hb:e1"
_AES_GCM = b"a"


class EncryptedStore(CodingStore):
    """
    Encrypts contents with AES-256-GCM, so that whoever has the wrapped store can neither read nor change them.

    ```python
    store = EncryptedStore(S3ToolResultStore("my-bucket"), keys=[Secret.from_env_var("HAYBALER_KEY")])
    ```

    An entry is bound to its reference, and so to its key and scope: one that was put in another's place is damaged. So
    is one whose reference has changed with the store's place: files that may move need `references="relative"`.
    References, sizes, and whether an entry is text are not hidden, nor is an older content of the same reference told
    from the newest. Anything that this store has not encrypted is damaged, too.

    An entry under a key that is not set up raises a `StoreConfigurationError`: the entry is there and whole, and the
    store is reached, but what it was set up with does not let it read.

    :param store: The store. A compressing one belongs outside, for what is encrypted cannot be compressed.
    :param keys: The keys, each made by `generate_key`. The first one encrypts, all decrypt: to change the key, put a
        new one in front, and remove the old one once nothing is read any more that it encrypted.
    :raises ImportError: If `cryptography` is not installed: `pip install "haybaler[encryption]"`.
    :raises ConfigurationError: If there is no key, or one of them is missing or no key.
    """

    store: Any

    def __init__(self, store: AnyToolResultStore, *, keys: Sequence[Secret]) -> None:
        super().__init__(store)
        self._secrets = list(keys)
        self._ring = KeyRing(self._secrets)
        self._form = Form(_MARK, binary=self.supports_binary_content)

    @staticmethod
    def generate_key() -> str:
        """Return a new key, for the environment variable: 32 random bytes in URL-safe base64."""
        return new_key()

    def _settings(self) -> dict[str, Any]:
        try:
            return {"keys": [secret.to_dict() for secret in self._secrets]}
        except ValueError as error:
            raise NotSerializableError("A key can only be serialized as `Secret.from_env_var`.") from error

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """As `ToolResultStore.from_dict`; keys are read from the environment again."""
        parameters = dict(data.get("init_parameters", {}))
        keys = [Secret.from_dict(key) if isinstance(key, dict) else key for key in parameters.get("keys", ())]
        return super().from_dict({**data, "init_parameters": {**parameters, "keys": keys}})

    def _encoded(self, name: str, content: Content) -> Content:
        return self._form.of_record(_AES_GCM, self._ring.encrypt(name, content))

    def _decoded(self, name: str, stored: Content) -> Content:
        record = self._form.parse(stored)
        if not isinstance(record, Record) or record.tag != _AES_GCM:
            raise corrupt()
        return self._ring.decrypt(name, record.body)

    # What an entry is bound to has to be known when it is written and when it is read: its reference. A store that
    # does not tell that beforehand gets a random name instead, which becomes a part of the reference.

    def _name(self, key: str) -> str:
        return self.store.reference(key) if self._is_predictable else token_hex(16)

    def _outer(self, name: str, reference: str) -> Outcome:
        if not self._is_predictable:
            return f"{name}:{reference}"
        return reference if reference == name else StoreError("The store gave another reference than it told before.")

    def _inner(self, reference: str) -> tuple[str, str]:
        if self._is_predictable:
            return reference, reference
        name, colon, inner = str(reference).partition(":")
        if not colon:
            raise InvalidReferenceError("The reference does not belong to this store.")
        return name, inner

    def _delete(self, references: Sequence[str]) -> Steps[None]:
        yield from super()._delete([self._inner(reference)[1] for reference in references])

    @property
    def _is_predictable(self) -> bool:
        return self.lack_of("reference") is None
