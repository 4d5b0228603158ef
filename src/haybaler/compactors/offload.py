"""A compactor that moves older results into a store."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Self

from haystack.core.serialization import default_from_dict, default_to_dict
from haystack.dataclasses import ChatMessage

from haybaler.compactors.protocol import SteppedCompactor
from haybaler.compactors.pruning import check_limits
from haybaler.counters.run import RunTokenCounter
from haybaler.economy import invalidated
from haybaler.effects import Steps, is_asynchronous
from haybaler.errors import ConfigurationError
from haybaler.hooks.context import MINIMUM_GAIN_CONTEXT_KEY, RESULT_STORE_CONTEXT_KEY, RUN_WRITES_CONTEXT_KEY
from haybaler.interop import optional_method
from haybaler.offloading import KeyPrefixes, carry_out, hand_over, slot_for
from haybaler.parts import is_empty
from haybaler.planning import OffloadPlan, unprotected_results
from haybaler.prepared import Ongoing
from haybaler.references import COMPACTION_META, compaction_mark, is_offloaded, is_read_back
from haybaler.run_writes import RunWrites
from haybaler.serialization import deserialize_parts, serialized
from haybaler.slices import in_slices
from haybaler.stores.protocol import AnyToolResultStore
from haybaler.stores.writing import predictor
from haybaler.swaps import Slot

STRATEGY = "tool_result_offloading"


class ToolResultOffloadCompactor(SteppedCompactor):
    """
    Moves older, large tool results into a store, oldest first, until the target is reached, and leaves pointers.

    Everything is decided before the first write: a result whose pointer would not save tokens is never written. The
    chosen results are written in one concurrent batch, and only when that is confirmed are they replaced. A result that
    could not be written stays whole, a warning is logged, and the next candidates take its place.

    :param store: Where results go, unless the run brings its own in `hook_context[RESULT_STORE_CONTEXT_KEY]`. Images
        and files only go to a store with `supports_binary_content`.
    :param min_keep_steps: How many of the newest tool-calling steps keep their results whole, whatever the target.
    :param min_tokens: Only results of more than this many tokens are moved.
    :param preview_chars: How many characters of each text the pointer shows; 0 for none.
    :param offload_errors: Whether results that report an error may be moved as well.
    :param write_timeout: Seconds that an asynchronous run waits for one batch of writes; None for no limit. What is
        not confirmed by then stays in the conversation.
    :param write_behind: Whether an asynchronous run goes on, with the pointers, while the batch is being written. That
        needs a `WriteBehindHook`, haybaler's `CompactionHook`, and a store that tells references before it writes;
        otherwise the batch is written at once. What cannot be written is put back before the model's next call.
    :raises ConfigurationError: If `min_keep_steps` is less than 1, another number is negative, or `write_behind` is no
        truth value.
    """

    def __init__(
        self,
        store: AnyToolResultStore,
        *,
        min_keep_steps: int = 1,
        min_tokens: int = 200,
        preview_chars: int = 200,
        offload_errors: bool = False,
        write_timeout: float | None = None,
        write_behind: bool = False,
    ) -> None:
        check_limits(min_keep_steps=min_keep_steps, min_tokens=min_tokens, preview_chars=preview_chars)
        if not isinstance(write_behind, bool):
            raise ConfigurationError(f"`write_behind` must be True or False, got {write_behind!r}.")
        self.store = store
        self.min_keep_steps = min_keep_steps
        self.min_tokens = min_tokens
        self.preview_chars = preview_chars
        self.offload_errors = offload_errors
        self.write_timeout = write_timeout
        self.write_behind = write_behind
        self._minimum_gain = 0.0
        self._writes: RunWrites | None = None
        self._ongoing = Ongoing()

    def for_run(self, hook_context: Mapping[str, Any]) -> Self:
        """
        Return a compactor that writes to the run's own store, and writes nothing where too little can be gained.

        :param hook_context: The run's context: the store under `RESULT_STORE_CONTEXT_KEY`, the part of the changed
            prompt that has to be saved if the target is not reached under `MINIMUM_GAIN_CONTEXT_KEY`, and what the run
            has in flight under `RUN_WRITES_CONTEXT_KEY`.
        :returns: A copy bound to what there is of them, or the compactor itself if there is nothing.
        """
        keys = (RESULT_STORE_CONTEXT_KEY, MINIMUM_GAIN_CONTEXT_KEY, RUN_WRITES_CONTEXT_KEY)
        store, minimum_gain, writes = map(hook_context.get, keys)
        if store is None and minimum_gain is None and writes is None:
            return self
        bound = copy.copy(self)
        bound.store = self.store if store is None else store
        bound._minimum_gain = minimum_gain or 0.0  # noqa: SLF001 - a copy of this very object
        bound._writes = writes  # noqa: SLF001
        return bound

    def _rewrite(
        self, messages: list[ChatMessage], sizes: list[int], target_tokens: int, counter: RunTokenCounter
    ) -> Steps[list[ChatMessage] | None]:
        plan = OffloadPlan(
            messages,
            self._slots(messages, sizes),
            surplus=sum(sizes) - target_tokens,
            size=counter.size,
            predict=predictor(self.store),
            minimum_gain=lambda first: self._minimum_gain * invalidated(messages, sizes, first),
        )
        writes = self._writes if self.write_behind and plan.is_predictable else None
        if writes is not None and (yield from is_asynchronous()) and writes.accepts():
            return (yield from hand_over(plan, self.store, writes, self._ongoing, timeout=self.write_timeout))
        return (yield from carry_out(plan, self.store, timeout=self.write_timeout))

    def _slots(self, messages: list[ChatMessage], sizes: list[int]) -> Iterator[Slot]:
        key_prefixes = KeyPrefixes("compacted")
        for index in in_slices(unprotected_results(messages, self.min_keep_steps)):
            slot = (
                self._slot(messages[index], index, sizes[index], key_prefixes)
                if self._may_move(messages[index], sizes[index])
                else None
            )
            if slot is not None:
                yield slot

    def _may_move(self, message: ChatMessage, tokens: int) -> bool:
        return (
            tokens > self.min_tokens
            and compaction_mark(message) is None
            and not is_offloaded(message)
            and not is_read_back(message)
        )

    def _slot(self, message: ChatMessage, index: int, tokens: int, key_prefixes: KeyPrefixes) -> Slot | None:
        return slot_for(
            message,
            index,
            results={
                place: result
                for place, result in enumerate(message.tool_call_results)
                if not is_empty(result) and (self.offload_errors or not result.error)
            },
            store=self.store,
            key_prefixes=key_prefixes,
            preview_chars=self.preview_chars,
            meta={COMPACTION_META: {"strategy": STRATEGY, "original_tokens": tokens}},
        )

    def warm_up(self) -> None:
        """Warm up the store."""
        optional_method(self.store, "warm_up").run()

    async def warm_up_async(self) -> None:
        """Warm up the store for the running event loop."""
        await optional_method(self.store, "warm_up").run_async()

    def close(self) -> None:
        """Close the store."""
        optional_method(self.store, "close").run()

    async def close_async(self) -> None:
        """Wait for what is being written behind runs, and close the store for the running event loop."""
        await self._ongoing.ended()
        await optional_method(self.store, "close").run_async()

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the compactor with its store.

        :returns: A dictionary with `type` and `init_parameters`.
        :raises NotSerializableError: If the store cannot be serialized.
        """
        return default_to_dict(
            self,
            store=serialized(self.store, "store"),
            min_keep_steps=self.min_keep_steps,
            min_tokens=self.min_tokens,
            preview_chars=self.preview_chars,
            offload_errors=self.offload_errors,
            write_timeout=self.write_timeout,
            write_behind=self.write_behind,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """
        Build a compactor with the same settings and store.

        :param data: What `to_dict` returned.
        :returns: The compactor.
        """
        deserialize_parts(data, "store")
        return default_from_dict(cls, data)
