"""The hook that decides when a conversation is compacted."""

import logging
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from haystack.components.agents.state.state import State
from haystack.components.agents.state.state_utils import replace_values
from haystack.core.serialization import default_from_dict, default_to_dict, generate_qualified_class_name
from haystack.dataclasses import ChatMessage
from haystack.tracing.tracer import tracer

from haybaler.calibration import Anchor, Fill
from haybaler.compactors.protocol import Compactor, SteppedCompactor
from haybaler.conversation import last_assistant_index, repaired
from haybaler.counters.approximate import ApproximateTokenCounter
from haybaler.counters.protocol import AnyTokenCounter
from haybaler.economy import Limits, first_change, invalidated
from haybaler.effects import Steps, await_effect, in_worker, perform, perform_async
from haybaler.errors import ConfigurationError, HaybalerError
from haybaler.hooks.context import (
    MINIMUM_GAIN_CONTEXT_KEY,
    RESULT_STORE_CONTEXT_KEY,
    RUN_TASK_CONTEXT_KEY,
    RUN_WRITES_CONTEXT_KEY,
    hook_context,
    run_store,
    run_writes,
)
from haybaler.hooks.measuring import measure
from haybaler.hooks.record import RunRecord
from haybaler.hooks.write_behind import settle, start_writes
from haybaler.interop import describe, method
from haybaler.lifecycle import run_lifecycle
from haybaler.references import is_offloaded
from haybaler.serialization import deserialize_parts, serialized
from haybaler.tools import bind_tools

logger = logging.getLogger(__name__)

_TAG = "haystack.agent.hook.compaction."


class CompactionHook:
    """
    Compacts an Agent's conversation before a call of the model, once it fills too much of the window.

    The fill is anchored on what the provider reported (`context_tokens`); only the messages since then are counted
    locally, in the provider's own scale. One hook serves any number of runs at once. Several hooks in a list each
    measure what the one before left.

    :param compactor: Rewrites the conversation; haybaler's, Haystack's or your own. One with `for_run` is bound to the
        run's `hook_context` first.
    :param context_window: The size of the model's window, in tokens.
    :param compact_at: The fraction of the window at which compaction begins.
    :param compact_to: The fraction of the window that it aims at.
    :param token_counter: Sizes what the provider has not counted yet; by default `ApproximateTokenCounter`.
    :raises ConfigurationError: If the window is not positive or the fractions are not
        `0 < compact_to < compact_at <= 1`.
    """

    allowed_hook_points: ClassVar[tuple[str, ...]] = ("before_llm",)

    def __init__(
        self,
        compactor: Compactor,
        *,
        context_window: int,
        compact_at: float = 0.7,
        compact_to: float = 0.4,
        token_counter: AnyTokenCounter | None = None,
    ) -> None:
        if context_window < 1:
            raise ConfigurationError(f"`context_window` must be a positive number of tokens, got {context_window}.")
        if not 0 < compact_to < compact_at <= 1:
            raise ConfigurationError(
                f"`compact_at` and `compact_to` must satisfy 0 < compact_to < compact_at <= 1, got "
                f"compact_at={compact_at} and compact_to={compact_to}."
            )
        self.compactor = compactor
        self.context_window = context_window
        self.compact_at = compact_at
        self.compact_to = compact_to
        self.token_counter = ApproximateTokenCounter() if token_counter is None else token_counter

    def run(self, state: State) -> None:
        """
        Compact the conversation if it fills too much of the window.

        :param state: The Agent's live `State`; `messages` and `context_tokens` are replaced if it was compacted.
        """
        perform(self._steps(state))

    async def run_async(self, state: State) -> None:
        """
        Compact the conversation if it fills too much of the window, without blocking the event loop.

        :param state: The Agent's live `State`; `messages` and `context_tokens` are replaced if it was compacted.
        """
        await perform_async(self._steps(state))

    def _steps(self, state: State) -> Steps[None]:
        bind_tools(state)
        put_back = yield from settle(state)
        record = RunRecord.of(state)
        record.find_task(state.data.get("messages") or [])
        limits = self._limits
        fill = yield from measure(
            state, record, self.token_counter, context_window=limits.window, trigger=limits.trigger
        )
        if put_back:  # hooks that go by `context_tokens` have to know, too
            messages = state.data["messages"]
            self._apply(state, record, messages, (yield from record.counter(self.token_counter).sizes(messages)), fill)
        pause = record.pause(self)
        if not self._is_due(fill.tokens, limits.trigger) or fill.tokens < pause.until:
            return
        target, minimum_gain = fill.target(limits.goal), limits.minimum_gain(fill.tokens)
        compacted = yield from self._compacted(state, record, target, minimum_gain)
        tokens = fill.tokens
        if compacted is not None:
            tokens = self._apply(state, record, *compacted, fill)
            logger.debug(
                "Compacted the conversation of an Agent.",
                extra={
                    "tokens_before": fill.tokens,
                    "tokens_after": tokens,
                    "messages": len(compacted[0]),
                    "target": target,
                },
            )
        _tag(target_tokens=target, compacted=compacted is not None)
        pause.after(tokens, limits)

    @property
    def _limits(self) -> Limits:
        return Limits(
            self.context_window,
            trigger=self.compact_at * self.context_window,
            goal=self.compact_to * self.context_window,
        )

    def _is_due(self, fill: int, trigger: float) -> bool:
        triggered = fill >= trigger
        _tag(
            strategy=generate_qualified_class_name(type(self.compactor)),
            estimated_context_tokens=fill,
            triggered=triggered,
        )
        return triggered

    def _compacted(
        self, state: State, record: RunRecord, target: int, minimum_gain: float
    ) -> Steps[tuple[list[ChatMessage], list[int]] | None]:
        """Return a shorter conversation and the sizes of its messages, or None."""
        run_writes(state).discard()  # of an attempt that was cancelled
        try:
            rewritten = yield from self._rewritten(state, record, target, minimum_gain)
        except Exception as error:  # noqa: BLE001 - a run with a long conversation is better than none
            logger.warning(
                "A compactor failed; the conversation stays as it is.",
                extra={"compactor": type(self.compactor).__name__, "error": describe(error)},
            )
            return None
        if rewritten is None:
            return None
        counter = record.counter(self.token_counter)
        messages: list[ChatMessage] = state.data["messages"]
        sizes = yield from counter.sizes(messages)
        sizes_after = yield from counter.sizes(rewritten)
        before, after = sum(sizes), sum(sizes_after)
        least = minimum_gain * invalidated(messages, sizes, first_change(messages, rewritten))
        # What somebody's compactor has stored by now would lie in the store in vain.
        worthwhile = after <= target or before - after >= least or _has_stored(messages, rewritten)
        return (rewritten, sizes_after) if after < before and worthwhile else None

    def _rewritten(
        self, state: State, record: RunRecord, target: int, minimum_gain: float
    ) -> Steps[list[ChatMessage] | None]:
        compactor = self.compactor
        if hasattr(compactor, "for_run"):
            own = {
                RUN_TASK_CONTEXT_KEY: record.task,
                MINIMUM_GAIN_CONTEXT_KEY: minimum_gain,
                RESULT_STORE_CONTEXT_KEY: run_store(state),
                RUN_WRITES_CONTEXT_KEY: run_writes(state),
            }
            compactor = compactor.for_run({**hook_context(state), **own})
        compact = method(
            compactor,
            "compact",
            messages=list(state.data["messages"]),
            target_tokens=target,
            token_counter=record.counter(self.token_counter),
        )
        compacted: object = yield from await_effect(compact)
        if compacted is None:
            return None
        if not (isinstance(compacted, list) and compacted and _are_messages(compacted)):
            raise HaybalerError(f"{type(compactor).__name__} returned something that is no conversation.")
        # haybaler's own compactors keep calls and results together. Nothing may be awaited after they have written
        # results: cancelled there, the run would leave entries that nothing refers to.
        return compacted if isinstance(compactor, SteppedCompactor) else (yield from in_worker(repaired, compacted))

    def _apply(
        self, state: State, record: RunRecord, compacted: list[ChatMessage], sizes: Sequence[int], fill: Fill
    ) -> int:
        """Put a compacted conversation into the `State` and return how full the window is now, in tokens."""
        record.counter(self.token_counter).keep_only(compacted)
        last = record.anchor(self.token_counter)
        covered = compacted[: last_assistant_index(compacted) + 1] or compacted
        tokens = sum(sizes[: len(covered)]) + fill.fixed
        state.set("messages", compacted, handler_override=replace_values)
        start_writes(state)  # nothing is awaited in between: what the conversation refers to is always on its way
        record.set_left(self.token_counter, compacted)
        if state.data.get("context_tokens"):
            # As Haystack's own hook does: the figure stands for the messages up to the last reply. Without one from the
            # provider it stays 0, and everything is counted.
            state.set("context_tokens", tokens, handler_override=replace_values)
        if last and last.reported:
            reported = state.data.get("context_tokens") or last.reported
            record.set_anchor(self.token_counter, Anchor(reported, covered, tokens, last.overhead))
        return tokens + sum(sizes[len(covered) :])

    def warm_up(self) -> None:
        """Warm up the counter and the compactor."""
        perform(self._lifecycle("warm_up"))

    async def warm_up_async(self) -> None:
        """Warm up the counter and the compactor; what is only synchronous is warmed up in a worker thread."""
        await perform_async(self._lifecycle("warm_up"))

    def close(self) -> None:
        """Release what the counter and the compactor hold."""
        perform(self._lifecycle("close"))

    async def close_async(self) -> None:
        """Release what the counter and the compactor hold for the running event loop."""
        await perform_async(self._lifecycle("close"))

    def _lifecycle(self, name: str) -> Steps[None]:
        yield from run_lifecycle(name, self.token_counter, self.compactor)

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the hook with its compactor and counter.

        :returns: A dictionary with `type` and `init_parameters`.
        :raises NotSerializableError: If one of them cannot be serialized.
        """
        return default_to_dict(
            self,
            compactor=serialized(self.compactor, "compactor"),
            context_window=self.context_window,
            compact_at=self.compact_at,
            compact_to=self.compact_to,
            token_counter=serialized(self.token_counter, "token counter"),
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """
        Build a hook with the same compactor and counter.

        :param data: What `to_dict` returned.
        :returns: The hook.
        """
        deserialize_parts(data, "compactor", "token_counter")
        return default_from_dict(cls, data)


def _tag(**tags: object) -> None:
    span = tracer.current_span()
    if span is not None:
        span.set_tags({f"{_TAG}{name}": value for name, value in tags.items()})


def _has_stored(before: Sequence[ChatMessage], after: Sequence[ChatMessage]) -> bool:
    known = {id(message) for message in before}
    return any(is_offloaded(message) and id(message) not in known for message in after)


def _are_messages(values: Sequence[object]) -> bool:
    return set(map(type, values)) == {ChatMessage} or all(isinstance(value, ChatMessage) for value in values)
