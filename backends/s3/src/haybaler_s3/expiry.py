"""The lifecycle rule that makes the server delete old entries."""

from hashlib import sha256
from typing import Any

from botocore.exceptions import ClientError

from haybaler.effects import Effect, Steps, await_effect
from haybaler.errors import ConfigurationError
from haybaler_s3.clients import Clients


class ExpiryRule:
    """
    One rule of a bucket's lifecycle configuration, for the objects of one prefix.

    :param bucket: The bucket.
    :param prefix: What the objects' keys begin with.
    :param clients: Where requests go.
    """

    def __init__(self, bucket: str, prefix: str, clients: Clients) -> None:
        self._bucket = bucket
        self._prefix = prefix
        self._clients = clients

    def ensure(self, days: int) -> Steps[None]:
        """
        Set the rule, and leave the other rules of the bucket as they are.

        :param days: After how many days an object expires.
        :returns: Steps without a result.
        :raises ConfigurationError: If `days` is less than 1.
        """
        if days < 1:
            raise ConfigurationError(f"`days` must be at least 1, got {days}.")
        rules = [rule for rule in (yield from self._rules()) if rule.get("ID") != self._name]
        rules.append(self._rule(days))
        yield from self._request("put_bucket_lifecycle_configuration", LifecycleConfiguration={"Rules": rules})

    @property
    def _name(self) -> str:
        return f"haybaler-{sha256(self._prefix.encode()).hexdigest()[:16]}"

    def _rule(self, days: int) -> dict[str, Any]:
        return {
            "ID": self._name,
            "Status": "Enabled",
            "Filter": {"Prefix": self._prefix},
            "Expiration": {"Days": days},
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
        }

    def _rules(self) -> Steps[list[dict[str, Any]]]:
        try:
            answer = yield from self._request("get_bucket_lifecycle_configuration")
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") == "NoSuchLifecycleConfiguration":
                return []
            raise
        rules: list[dict[str, Any]] = answer.get("Rules") or []
        return rules

    def _request(self, operation: str, **parameters: Any) -> Steps[Any]:
        def run() -> Any:
            return getattr(self._clients.synchronous(), operation)(Bucket=self._bucket, **parameters)

        async def run_async() -> Any:
            return await getattr(await self._clients.asynchronous(), operation)(Bucket=self._bucket, **parameters)

        return (yield from await_effect(Effect(run, run_async)))
