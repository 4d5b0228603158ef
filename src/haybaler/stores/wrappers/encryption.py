"""Keys, and contents encrypted with them."""

import base64
import binascii
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Self
from zlib import crc32

from haystack.utils import Secret

from haybaler.errors import ConfigurationError, StoreConfigurationError
from haybaler.stores.driver import Content
from haybaler.stores.wrappers.octets import content_of, corrupt, cut, kind_of, pieces_of

KEY_BYTES = 32  # AES-256
_SALT_BYTES = 32
_NONCE_BYTES = 12  # what GCM is made for, NIST SP 800-38D, 5.2.1.1
_TAG_BYTES = 16
# The key's id, the salt, the nonce, and whether it is text.
_HEADER = struct.Struct(f">8s{_SALT_BYTES}s{_NONCE_BYTES}sc")
_CHECKSUM = struct.Struct(">I")
_HEAD_BYTES = _HEADER.size + _CHECKSUM.size


def new_key() -> str:
    """Return a new key as text: 32 random bytes in URL-safe base64."""
    return base64.urlsafe_b64encode(os.urandom(KEY_BYTES)).decode("ascii")


@dataclass(frozen=True, slots=True)
class Key:
    """
    A key.

    :param data: Its bytes; left out of the `repr`.
    :param id: Which key it is. It tells nothing about the bytes.
    """

    data: bytes = field(repr=False)
    id: bytes

    @classmethod
    def of(cls, secret: Secret) -> Self:
        """
        Resolve a secret.

        :param secret: What `new_key` returned.
        :returns: The key.
        :raises ConfigurationError: If it is missing or no key. Its value is never part of the text.
        """
        data = _resolved(secret)
        if len(data) != KEY_BYTES:
            raise ConfigurationError(f"A key must be a Secret with {KEY_BYTES} random bytes in URL-safe base64.")
        return cls(data, _derived(data, b"", b"haybaler: id of a key", 8))


class KeyRing:
    """
    Several keys, of which the first one encrypts and the one that an entry names decrypts.

    Each entry is encrypted with AES-256-GCM under a key of its own, derived from the ring's key and 256 random bits.
    So a nonce is never used twice with one key, however many entries there are.

    :param secrets: The keys.
    :raises ImportError: If `cryptography` is not installed.
    :raises ConfigurationError: If there is none, or one of them is missing or no key.
    """

    def __init__(self, secrets: Sequence[Secret]) -> None:
        if find_spec("cryptography") is None:
            raise ImportError("EncryptedStore needs cryptography. Run 'pip install haybaler[encryption]'.")
        keys = [Key.of(secret) for secret in secrets]
        if not keys:
            raise ConfigurationError("An EncryptedStore needs at least one key.")
        self._first = keys[0]
        self._keys = {key.id: key for key in reversed(keys)}

    def encrypt(self, name: str, content: Content) -> list[bytes]:
        """
        Encrypt a content.

        :param name: What it belongs to. It can only be decrypted with the same name.
        :param content: Text or bytes.
        :returns: The header and what is encrypted, in pieces.
        """
        salt, nonce = os.urandom(_SALT_BYTES), os.urandom(_NONCE_BYTES)
        header = _HEADER.pack(self._first.id, salt, nonce, kind_of(content))
        encryptor = _cipher(self._first, salt, nonce).encryptor()
        encryptor.authenticate_additional_data(_context(header, name))
        pieces = [encryptor.update(piece) for piece in pieces_of(content)]
        pieces.append(encryptor.finalize())
        # The checksum tells a damaged header from one that names a key which is not there.
        return [header, _CHECKSUM.pack(crc32(header)), *pieces, encryptor.tag]

    def decrypt(self, name: str, sealed: memoryview) -> Content:
        """
        Decrypt a content.

        :param name: The name that it was encrypted with.
        :param sealed: What `encrypt` returned, as one.
        :returns: The content.
        :raises CorruptEntryError: If it is damaged, forged, or belongs to another name.
        :raises StoreConfigurationError: If it is encrypted with a key that is not in the ring.
        """
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - only who encrypts has it

        if len(sealed) < _HEAD_BYTES + _TAG_BYTES:
            raise corrupt()
        header = bytes(sealed[: _HEADER.size])
        if _CHECKSUM.unpack_from(sealed, _HEADER.size)[0] != crc32(header):
            raise corrupt()
        key_id, salt, nonce, kind = _HEADER.unpack(header)
        key = self._keys.get(key_id)
        if key is None:
            raise StoreConfigurationError(f"The entry is encrypted with a key that is not set up here: {key_id.hex()}.")
        decryptor = _cipher(key, salt, nonce, tag=bytes(sealed[-_TAG_BYTES:])).decryptor()
        decryptor.authenticate_additional_data(_context(header, name))
        pieces = [decryptor.update(piece) for piece in cut(sealed[_HEAD_BYTES:-_TAG_BYTES])]
        try:
            pieces.append(decryptor.finalize())
        except InvalidTag as error:
            raise corrupt() from error
        return content_of(kind, pieces)


def _resolved(secret: Any) -> bytes:
    if not isinstance(secret, Secret):
        return b""
    try:
        return base64.b64decode(str(secret.resolve_value()), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):  # the text of some of them holds the value
        return b""


def _context(header: bytes, name: str) -> bytes:
    return header + name.encode("utf-8", "surrogatepass")


def _cipher(key: Key, salt: bytes, nonce: bytes, tag: bytes | None = None) -> Any:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes  # noqa: PLC0415

    own = _derived(key.data, salt, b"haybaler: key of an entry", KEY_BYTES)
    return Cipher(algorithms.AES(own), modes.GCM(nonce, tag))


def _derived(key: bytes, salt: bytes, purpose: bytes, length: int) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415

    return HKDF(algorithm=SHA256(), length=length, salt=salt, info=purpose).derive(key)
