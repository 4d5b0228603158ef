"""The lifecycle rule that makes the server delete old entries."""

from hashlib import sha256
from typing import Any

from botocore.exceptions import ClientError

from haybaler.effects import Steps
from haybaler.errors import ConfigurationError
from haybaler_s3.requests import Requests, code_of


class ExpiryRule:
    """
    One rule of a bucket's lifecycle configuration, for the objects of one prefix.

    :param requests: Where requests go.
    :param folder: What the objects' keys begin with.
    """

    def __init__(self, requests: Requests, folder: str) -> None:
        self._requests = requests
        self._folder = folder

    def ensure(self, days: int) -> Steps[None]:
        """
        Set the rule, and leave the other rules of the bucket as they are.

        :param days: After how many days an object expires.
        :returns: Steps without a result.
        :raises ConfigurationError: If `days` is less than 1.
        """
        if days < 1:
            raise ConfigurationError("`days` must be an integer of at least 1.")
        present = yield from self._present()
        size = present.get("TransitionDefaultMinimumObjectSize")
        kept = {} if size is None else {"TransitionDefaultMinimumObjectSize": size}
        rules = [rule for rule in present.get("Rules") or () if rule.get("ID") != self._name]
        yield from self._requests.send(
            "put_bucket_lifecycle_configuration", LifecycleConfiguration={"Rules": [*rules, self._rule(days)]}, **kept
        )

    @property
    def _name(self) -> str:
        return f"haybaler-{sha256(self._folder.encode()).hexdigest()[:16]}"

    def _rule(self, days: int) -> dict[str, Any]:
        return {
            "ID": self._name,
            "Status": "Enabled",
            "Filter": {"Prefix": self._folder},
            "Expiration": {"Days": days},
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
        }

    def _present(self) -> Steps[dict[str, Any]]:
        try:
            answer: dict[str, Any] = yield from self._requests.send("get_bucket_lifecycle_configuration")
        except ClientError as error:
            if code_of(error) != "NoSuchLifecycleConfiguration":
                raise
            return {}
        return answer
