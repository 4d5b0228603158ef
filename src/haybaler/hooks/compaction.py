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
from haybaler.effects import Steps, await_effect, in_worker, perform, perform_async
from haybaler.errors import ConfigurationError, HaybalerError
from haybaler.hooks.context import RUN_TASK_CONTEXT_KEY, hook_context
from haybaler.hooks.lifecycle import run_lifecycle
from haybaler.hooks.measuring import measure
from haybaler.hooks.record import Pause, RunRecord
from haybaler.interop import describe, method
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
        record = RunRecord.of(state)
        counter = record.counter(self.token_counter)
        fill = yield from measure(
            state, record, self.token_counter, context_window=self.context_window, trigger=self._trigger
        )
        if not self._is_due(fill.tokens, record.pause(self)):
            return
        target = fill.target(self.compact_to * self.context_window)
        compacted = yield from self._compacted(state, record, target)
        tokens = fill.tokens
        if compacted is not None:
            kept = yield from counter.sizes(compacted)
            counter.keep_only(compacted)
            tokens = self._apply(state, record, compacted, kept, fill)
            logger.debug(
                "Compacted the conversation of an Agent.",
                extra={
                    "tokens_before": fill.tokens,
                    "tokens_after": tokens,
                    "messages": len(compacted),
                    "target": target,
                },
            )
        _tag(target_tokens=target, compacted=compacted is not None)
        record.pause(self).after(tokens, trigger=self._trigger, context_window=self.context_window)

    @property
    def _trigger(self) -> float:
        return self.compact_at * self.context_window

    def _is_due(self, fill: int, pause: Pause) -> bool:
        triggered = fill >= self._trigger
        _tag(
            strategy=generate_qualified_class_name(type(self.compactor)),
            estimated_context_tokens=fill,
            triggered=triggered,
        )
        return triggered and fill >= pause.until

    def _compacted(self, state: State, record: RunRecord, target: int) -> Steps[list[ChatMessage] | None]:
        try:
            return (yield from self._rewritten(state, record, target))
        except Exception as error:  # noqa: BLE001 - a run with a long conversation is better than none
            logger.warning(
                "A compactor failed; the conversation stays as it is.",
                extra={"compactor": type(self.compactor).__name__, "error": describe(error)},
            )
            return None

    def _rewritten(self, state: State, record: RunRecord, target: int) -> Steps[list[ChatMessage] | None]:
        compactor = self.compactor
        if hasattr(compactor, "for_run"):
            compactor = compactor.for_run({**hook_context(state), RUN_TASK_CONTEXT_KEY: record.task})
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
        if not (isinstance(compacted, list) and compacted and all(isinstance(m, ChatMessage) for m in compacted)):
            raise HaybalerError(f"{type(compactor).__name__} returned something that is no conversation.")
        # haybaler's own compactors keep calls and results together. Nothing may be awaited after they have written
        # results: cancelled there, the run would leave entries that nothing refers to.
        return compacted if isinstance(compactor, SteppedCompactor) else (yield from in_worker(repaired, compacted))

    def _apply(
        self, state: State, record: RunRecord, compacted: list[ChatMessage], sizes: Sequence[int], fill: Fill
    ) -> int:
        """Put a compacted conversation into the `State` and return how full the window is now, in tokens."""
        last = record.anchor(self.token_counter)
        covered = compacted[: last_assistant_index(compacted) + 1] or compacted
        tokens = sum(sizes[: len(covered)]) + fill.fixed
        state.set("messages", compacted, handler_override=replace_values)
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
