"""Warming up and closing what hooks and tools hold, without ever ending a run over it."""

import logging

from haybaler.effects import Steps, await_effect
from haybaler.interop import describe, optional_method

logger = logging.getLogger(__name__)


def run_lifecycle(name: str, *parts: object) -> Steps[None]:
    """
    Call a lifecycle method of every part that has it.

    A part that fails is logged and does not keep the others from their turn: a run must not end because a vocabulary
    cannot be downloaded or a store is away for a moment. Whatever really is missing shows at its first use.

    :param name: "warm_up" or "close".
    :param parts: Counters, compactors and stores.
    :returns: Steps without a result.
    """
    for part in parts:
        try:
            yield from await_effect(optional_method(part, name))
        except Exception as error:  # noqa: BLE001 - the Agent runs without it
            logger.warning(
                "A part of a hook or toolset could not be warmed up or closed.",
                extra={"part": type(part).__name__, "method": name, "error": describe(error)},
            )
