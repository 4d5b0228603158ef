"""The road from a plan to a store and back, used by the offload hook and the offload compactor."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from secrets import token_hex
from typing import Any

from haystack.dataclasses import ChatMessage, ToolCallResult

from haybaler.effects import Steps, await_effect, in_turn, in_worker
from haybaler.errors import StoreError
from haybaler.parts import Part, is_text, parts_of
from haybaler.planning import OffloadPlan
from haybaler.prepared import Batch, Ongoing, failure_fields
from haybaler.run_writes import RunWrites
from haybaler.stores.names import slug
from haybaler.stores.outcomes import Outcome
from haybaler.stores.protocol import StoreEntry
from haybaler.stores.writing import delete_quietly, write_entries
from haybaler.swaps import Slot

logger = logging.getLogger(__name__)

_SLUG_CHARS = 24
# Bytes of the part of a key that nobody can guess, and how many such parts are drawn at a time: asking the system for
# randomness takes as long as making the rest of a key.
_RANDOM_BYTES = 16
_RANDOM_CHARS = 2 * _RANDOM_BYTES
_DRAWN = 4
# So many outcomes are settled on the event loop, in well under a millisecond.
_INLINE_ITEMS = 100


def slot_for(
    message: ChatMessage,
    index: int,
    *,
    results: Mapping[int, ToolCallResult],
    store: Any,
    key_prefixes: "KeyPrefixes",
    preview_chars: int,
    meta: Mapping[str, Any] | None = None,
) -> Slot | None:
    """
    Prepare a message for the store.

    :param message: The message.
    :param index: Its place in the conversation.
    :param results: What is to be replaced: results that are not empty, by their places among the message's.
    :param store: Where they would go; only whether it holds bytes is looked at.
    :param key_prefixes: What the keys of each result begin with.
    :param preview_chars: How many characters of each text the pointer shows.
    :param meta: What is added to the metadata beside the references.
    :returns: The slot, or None if nothing of the message can or should be stored.
    """
    parts: list[Part] = []
    for place, result in results.items():
        prefix = key_prefixes.draw(result.origin.tool_name)
        is_storable = is_text(result) or getattr(store, "supports_binary_content", False)
        own = parts_of(result, place, prefix=prefix, preview_chars=preview_chars) if is_storable else None
        if own is None:
            logger.warning(
                "A result with image or file content stays in the conversation: the store does not hold binary "
                "content, or the content cannot be decoded.",
                extra={"tool": result.origin.tool_name, "store": type(store).__name__},
            )
            return None
        parts += own
    return Slot(index, message, results, parts, meta) if parts else None


class KeyPrefixes:
    """
    What the keys of results begin with: a label, the tool's name and a random part that nobody can guess, so that equal
    names, call ids and step numbers in two runs never meet.

    :param label: What tells where in the run the results belong.
    """

    def __init__(self, label: str) -> None:
        self._label = label
        self._of_tools: dict[str, str] = {}
        self._randoms: list[str] = []

    def draw(self, tool_name: str) -> str:
        """
        Return a prefix that nobody ever gets again.

        :param tool_name: The tool that gave the result.
        :returns: The prefix, with 128 random bits at its end.
        """
        if tool_name not in self._of_tools:
            self._of_tools[tool_name] = f"{self._label}_{slug(tool_name, _SLUG_CHARS)}_"
        if not self._randoms:
            drawn = token_hex(_DRAWN * _RANDOM_BYTES)
            self._randoms += [drawn[start : start + _RANDOM_CHARS] for start in range(0, len(drawn), _RANDOM_CHARS)]
        return self._of_tools[tool_name] + self._randoms.pop()


def carry_out(
    plan: OffloadPlan, store: Any, *, timeout: float | None, first: list[Part] | None = None
) -> Steps[list[ChatMessage] | None]:
    """
    Write what a plan chooses, batch by batch, and return the new conversation.

    A cancellation or an unexpected error leaves the caller's conversation as it is; what was written by then is
    removed if the store can.

    :param plan: The plan.
    :param store: Any store.
    :param timeout: Seconds that asynchronous callers wait for one batch; None for no limit.
    :param first: The plan's first batch, if it has been chosen on the event loop, where the rest is done too then.
    :returns: Steps that end in the new conversation, or None if nothing was replaced.
    """
    done: dict[int, Outcome] = {}  # of the last batch; what came of others, the plan knows
    quick = first is not None
    try:
        while first or not plan.is_complete:
            parts = first or (yield from (in_turn if quick else in_worker)(plan.next_batch))
            first = None
            if parts:
                done.clear()
                entries = [StoreEntry(part.key, part.content) for part in parts]
                outcomes = yield from await_effect(write_entries(store, entries, timeout=timeout, done=done))
                # Behind what other runs have to choose: their writes should begin, the pointers are not urgent.
                if quick or (plan.is_predictable and len(parts) <= _INLINE_ITEMS):
                    yield from in_turn(plan.settle, outcomes)
                else:  # there are many, or the pointers are made and sized only now; both takes its time
                    yield from in_worker(plan.settle, outcomes)
        if plan.orphans:
            yield from await_effect(delete_quietly(store, plan.orphans))
    except GeneratorExit:
        raise  # abandoned together with its event loop: nothing can be awaited any more
    except BaseException:
        in_vain = dict.fromkeys([*_references(done.values()), *plan.references_in_flight()])
        yield from await_effect(delete_quietly(store, list(in_vain)))
        raise
    log_failures(plan.failures, store)
    return plan.messages if plan.changed else None


def _references(outcomes: Iterable[Outcome]) -> list[str]:
    return [outcome for outcome in outcomes if isinstance(outcome, str)]


def hand_over(
    plan: OffloadPlan, store: Any, writes: RunWrites, ongoing: Ongoing, *, timeout: float | None
) -> Steps[list[ChatMessage] | None]:
    """
    Choose what a plan would write first and hand it over to the run, which writes it after the swap.

    :param plan: The plan, with predicted references.
    :param store: Where the results go.
    :param writes: The run's writes in flight.
    :param ongoing: The compactor's.
    :param timeout: Seconds for the batch; None for no limit.
    :returns: Steps that end in the new conversation, or None if nothing was replaced.
    """

    def prepared() -> Batch | None:
        swaps = plan.assume()
        return Batch(swaps, store, timeout=timeout, ongoing=ongoing) if swaps else None

    batch = yield from in_worker(prepared)
    log_failures(plan.failures, store)
    if batch is None:
        return None
    writes.prepare(batch)
    return plan.messages


def log_failures(failures: Sequence[tuple[Slot, StoreError]], store: object) -> None:
    """
    Log one warning for the writes of a batch that failed, if any did. Nothing of a result is in it.

    :param failures: The results that stay in the conversation, and why.
    :param store: The store.
    """
    if failures:
        logger.warning(
            "Tool results could not be written to the store and stay in the conversation.",
            extra=failure_fields(failures, store),
        )
