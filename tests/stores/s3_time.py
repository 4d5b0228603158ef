"""Time that passes for the objects of a server in no time: the server dates them, and answers are corrected."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from haybaler.effects import Effect, Steps
from haybaler_s3 import lifespan, sweeping
from haybaler_s3.lifespan import Keeper
from haybaler_s3.requests import Requests


class MadeUpTime:
    """
    How much later it is than the server's clock says.

    :param patch: Where answers are corrected.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.later = 0.0
        self._written: dict[str, float] = {}  # how much later it was when each object was written
        server_time, once, repeated, alive = lifespan.server_time, Requests.once, Requests.repeated, Keeper.alive

        def later(answer: Mapping[str, Any]) -> Any:
            return server_time(answer) + timedelta(seconds=self.later)

        def noting(requests: Requests, operation: str, **parameters: Any) -> Effect[Any]:
            if operation in {"put_object", "complete_multipart_upload"}:
                self._written[parameters["Key"]] = self.later
            return once(requests, operation, **parameters)

        def send(requests: Requests, operation: str, **parameters: Any) -> Steps[Any]:
            answer = yield from repeated(requests, requests.once(operation, **parameters))
            for item in answer.get("Contents") or [answer]:
                self._correct(item, item.get("Key", parameters.get("Key")))
            return answer

        def kept(keeper: Keeper, key: str, answer: dict[str, Any], *, renew: bool) -> Steps[None]:
            if renew:  # an object that was fetched as a whole
                self._correct(answer, key)
            return (yield from alive(keeper, key, answer, renew=renew))

        for module in (lifespan, sweeping):
            patch.setattr(module, "server_time", later)
        patch.setattr(Requests, "once", noting)
        patch.setattr(Requests, "send", send)
        patch.setattr(Keeper, "alive", kept)

    def _correct(self, item: dict[str, Any], key: str) -> None:
        if "LastModified" in item:
            item["LastModified"] += timedelta(seconds=self._written.get(key, 0.0))
