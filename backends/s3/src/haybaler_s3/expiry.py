"""The lifecycle rules that make the server delete old entries."""

from hashlib import sha256
from typing import Any

from botocore.exceptions import ClientError

from haybaler.effects import Steps
from haybaler.errors import ConfigurationError
from haybaler_s3.requests import Requests, code_of


class ExpiryRules:
    """
    The rules of a bucket's lifecycle configuration, each for the objects whose keys begin in one way.

    :param requests: Where requests go.
    """

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    def ensure(self, folder: str, days: int) -> Steps[None]:
        """
        Set the rule of a folder, and leave the other rules of the bucket as they are.

        :param folder: What the objects' keys begin with.
        :param days: After how many days an object expires.
        :returns: Steps without a result.
        :raises ConfigurationError: If `days` is no whole number of at least 1, or the folder is the whole bucket.
        """
        given: object = days
        if isinstance(given, bool) or not isinstance(given, int) or given < 1:
            raise ConfigurationError(f"`days` must be a whole number of at least 1, not {given!r}.")
        if not folder:
            raise ConfigurationError(
                "Without a `prefix`, the rule would be for the whole bucket and delete what is not the store's; "
                "give the store a prefix, or set the rule for a scope."
            )
        name = _name(folder)
        present = yield from self._present()
        size = present.get("TransitionDefaultMinimumObjectSize")
        kept = {} if size is None else {"TransitionDefaultMinimumObjectSize": size}
        rules = [rule for rule in present.get("Rules") or () if rule.get("ID") != name]
        rule = {
            "ID": name,
            "Status": "Enabled",
            "Filter": {"Prefix": folder},
            "Expiration": {"Days": days},
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
        }
        yield from self._requests.send(
            "put_bucket_lifecycle_configuration", LifecycleConfiguration={"Rules": [*rules, rule]}, **kept
        )

    def _present(self) -> Steps[dict[str, Any]]:
        try:
            answer: dict[str, Any] = yield from self._requests.send("get_bucket_lifecycle_configuration")
        except ClientError as error:
            if code_of(error) != "NoSuchLifecycleConfiguration":
                raise
            return {}
        return answer


def _name(folder: str) -> str:
    return f"haybaler-{sha256(folder.encode()).hexdigest()[:16]}"
