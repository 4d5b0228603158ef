"""The hook that moves fresh tool results into a store before the model sees them."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

from haystack.components.agents.state.state import State
from haystack.components.agents.state.state_utils import replace_values
from haystack.core.serialization import default_from_dict, default_to_dict
from haystack.dataclasses import ChatMessage, ToolCallResult
from haystack.tools import AgentTool

from haybaler.conversation import fresh_results
from haybaler.counters.approximate import ApproximateTokenCounter
from haybaler.counters.guarded import INLINE_CHARS
from haybaler.counters.protocol import AnyTokenCounter
from haybaler.counters.run import RunTokenCounter
from haybaler.effects import Steps, in_turn, perform, perform_async
from haybaler.errors import ConfigurationError
from haybaler.hooks.carrying import is_carrying
from haybaler.hooks.context import own_store, run_store
from haybaler.hooks.record import RunRecord
from haybaler.hooks.strategies import PolicyTable, Rule, Strategies, key_from_text, key_to_text
from haybaler.interop import describe, synchronous
from haybaler.lifecycle import run_lifecycle
from haybaler.offloading import KeyPrefixes, carry_out, slot_for
from haybaler.parts import Part, is_empty, payload_of
from haybaler.planning import OffloadPlan
from haybaler.references import any_read_back, is_offloaded
from haybaler.serialization import deserialize_parts, serialized
from haybaler.stores.protocol import AnyToolResultStore
from haybaler.stores.writing import predictor
from haybaler.swaps import Slot
from haybaler.tools import bind_tools

logger = logging.getLogger(__name__)

# For choosing on the event loop, the work on one result as that of counting so many characters, without its preview.
_RESULT_CHARS = 500

_Result = tuple[int, ToolCallResult, Rule]  # its place among the message's results, and what decides on it


class _Candidate(NamedTuple):
    place: int  # in the conversation
    message: ChatMessage
    results: list[_Result]  # those that may be moved


@dataclass(slots=True)
class _Work:
    candidates: list[_Candidate]
    store: Any
    counter: RunTokenCounter
    plan: OffloadPlan | None = None
    batch: list[Part] | None = None  # the plan's first, if it has been chosen

    @property
    def messages(self) -> list[ChatMessage]:
        return [candidate.message for candidate in self.candidates]


class ToolResultOffloadHook:
    """
    Moves the results of the step that has just run into a store and leaves pointers to them.

    Which tools, and when, is a matter of `offload_strategies`. A key is a tool's name, a tuple of names, a shell-style
    pattern such as `github__*`, or `"*"` for all others. The most specific key counts: first the exact name, then a
    tuple that has it, then the pattern with the most literal characters.

    A result is only moved when its pointer is smaller. What haybaler's toolset read back is never moved again. All
    parts of a step are written in one concurrent batch; a result that could not be written stays whole, with a warning.

    Where Agents run inside the tools, the hook is registered under `before_tool` as well, unless the Agent has a
    `CompactionHook`: it moves nothing there, but from then on these Agents find the run's store.

    :param store: Where results go, unless the run brings its own in `hook_context[RESULT_STORE_CONTEXT_KEY]`.
    :param offload_strategies: The policy for each key.
    :param preview_chars: How many characters of each text the pointer shows; 0 for none.
    :param token_counter: Decides whether a pointer is smaller, and sizes results for policies that go by tokens; by
        default `ApproximateTokenCounter`.
    :param offload_errors: Whether results that report an error may be moved as well.
    :param write_timeout: Seconds that an asynchronous run waits for the batch of writes; None for no limit. What is
        not confirmed by then stays in the conversation.
    :raises ConfigurationError: If `preview_chars` is negative.
    """

    allowed_hook_points: ClassVar[tuple[str, ...]] = ("after_tool", "before_tool")

    def __init__(
        self,
        store: AnyToolResultStore,
        offload_strategies: Strategies,
        *,
        preview_chars: int = 200,
        token_counter: AnyTokenCounter | None = None,
        offload_errors: bool = False,
        write_timeout: float | None = None,
    ) -> None:
        if preview_chars < 0:
            raise ConfigurationError(f"`preview_chars` must be at least 0, got {preview_chars}.")
        self.store = store
        self.offload_strategies = dict(offload_strategies)
        self._policies = PolicyTable(self.offload_strategies)
        self.preview_chars = preview_chars
        self.token_counter = ApproximateTokenCounter() if token_counter is None else token_counter
        self.offload_errors = offload_errors
        self.write_timeout = write_timeout

    def run(self, state: State) -> None:
        """
        Move this step's results. Before the tools have run, there are none.

        :param state: The Agent's live `State`; `messages` is replaced if a result was moved.
        """
        perform(self._steps(state))

    async def run_async(self, state: State) -> None:
        """
        Move this step's results without blocking the event loop. Before the tools have run, there are none.

        :param state: The Agent's live `State`; `messages` is replaced if a result was moved.
        """
        await perform_async(self._steps(state))

    def _steps(self, state: State) -> Steps[None]:
        work = yield from in_turn(self._work, state)
        plan = work.plan
        if plan is None:
            if not work.candidates:
                return
            yield from work.counter.sizes(work.messages)
            plan = self._plan(state, work)
        rewritten = yield from carry_out(plan, work.store, timeout=self.write_timeout, first=work.batch)
        if rewritten is None:
            work.counter.keep_at_most(state.data["messages"])
        else:
            state.set("messages", rewritten, handler_override=replace_values)
            work.counter.keep_only(rewritten)

    def _work(self, state: State) -> _Work:
        _warn_of_agents_without_the_store(state)
        bind_tools(state)
        if self._policies.strategies != self.offload_strategies:  # somebody has changed them
            self._policies = PolicyTable(self.offload_strategies)
        messages: list[ChatMessage] = state.data.get("messages") or []
        fresh = fresh_results(messages).items()
        candidates = [
            _Candidate(place, messages[place], eligible)
            for place, results in fresh
            if (eligible := self._eligible(messages[place], results))
        ]
        own = run_store(state)
        store = self.store if own is None else own  # a store with a length is false while it is empty
        work = _Work(candidates, store, RunRecord.of(state).counter(self.token_counter))
        if candidates and self._is_quick(work):
            # Other runs have to choose as well: what can wait until the writes have begun does.
            work.plan = self._plan(state, work, bounds=work.counter)
            work.batch = work.plan.next_batch()
            work.candidates = []  # they are in the plan now, and many runs may be waiting for their writes
        return work

    def _plan(self, state: State, work: _Work, bounds: RunTokenCounter | None = None) -> OffloadPlan:
        return OffloadPlan(
            state.data["messages"],
            self._slots(state, work),
            surplus=None,
            size=work.counter.size,
            predict=predictor(work.store),
            bounds=bounds,
        )

    def _eligible(self, message: ChatMessage, results: Sequence[ToolCallResult]) -> list[_Result]:
        if is_offloaded(message) or any_read_back(results):
            return []
        return [
            (place, result, rule)
            for place, result in enumerate(results)
            if (self.offload_errors or not result.error)
            and not is_empty(result)
            and (rule := self._policies.rule_for(result.origin.tool_name)) is not None
        ]

    def _is_quick(self, work: _Work) -> bool:
        """Whether there are few results, with nothing to decode, and nobody's code that might wait for something."""
        results = [each for candidate in work.candidates for each in candidate.results]
        return (
            len(results) * (_RESULT_CHARS + self.preview_chars) <= INLINE_CHARS
            and all(isinstance(result.result, str) and rule.inline for _, result, rule in results)
            and work.counter.is_little(work.messages)
        )

    def _slots(self, state: State, work: _Work) -> Iterator[Slot]:
        key_prefixes = KeyPrefixes(str(state.data.get("step_count") or 0))
        for place, message, results in work.candidates:
            slot = slot_for(
                message,
                place,
                results={n: r for n, r, rule in results if self._is_chosen(r, rule, message, state, work.counter)},
                store=work.store,
                key_prefixes=key_prefixes,
                preview_chars=self.preview_chars,
            )
            if slot is not None:
                yield slot

    def _is_chosen(
        self, result: ToolCallResult, rule: Rule, message: ChatMessage, state: State, counter: RunTokenCounter
    ) -> bool:
        name, policy = result.origin.tool_name, rule.policy
        try:
            if rule.by_tokens:
                tokens = counter.size(message)
                return bool(synchronous(policy, "should_offload_tokens")(tool_name=name, tokens=tokens, state=state))
            payload = payload_of(result)
            return bool(synchronous(policy, "should_offload")(tool_name=name, result=payload, state=state))
        except Exception as error:  # noqa: BLE001 - one policy must not end the run
            logger.warning(
                "An offload policy failed; the result stays in the conversation.",
                extra={"tool": name, "policy": type(policy).__name__, "error": describe(error)},
            )
            return False

    def warm_up(self) -> None:
        """Warm up the counter and the hook's own store."""
        perform(run_lifecycle("warm_up", self.token_counter, self.store))

    async def warm_up_async(self) -> None:
        """Warm up the counter and the hook's own store for the running event loop."""
        await perform_async(run_lifecycle("warm_up", self.token_counter, self.store))

    def close(self) -> None:
        """Release what the counter and the hook's own store hold."""
        perform(run_lifecycle("close", self.token_counter, self.store))

    async def close_async(self) -> None:
        """Release what the counter and the hook's own store hold for the running event loop."""
        await perform_async(run_lifecycle("close", self.token_counter, self.store))

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the hook with its store, policies and counter.

        :returns: A dictionary with `type` and `init_parameters`; a tuple of names becomes a JSON array.
        :raises NotSerializableError: If one of them cannot be serialized.
        """
        return default_to_dict(
            self,
            store=serialized(self.store, "store"),
            offload_strategies={
                key_to_text(key): serialized(policy, "offload policy")
                for key, policy in self.offload_strategies.items()
            },
            preview_chars=self.preview_chars,
            token_counter=serialized(self.token_counter, "token counter"),
            offload_errors=self.offload_errors,
            write_timeout=self.write_timeout,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """
        Build a hook with the same store, policies and counter.

        :param data: What `to_dict` returned.
        :returns: The hook.
        """
        deserialize_parts(data, "store", "token_counter")
        policies = data.get("init_parameters", {}).get("offload_strategies") or {}
        deserialize_parts({"init_parameters": policies}, *policies)
        data["init_parameters"]["offload_strategies"] = {key_from_text(key): policy for key, policy in policies.items()}
        return default_from_dict(cls, data)


def _warn_of_agents_without_the_store(state: State) -> None:
    messages: list[ChatMessage] = state.data.get("messages") or []
    is_first_step_over = not state.data.get("step_count") and messages and not messages[-1].tool_calls
    if is_first_step_over and own_store(state) is not None:
        names = [t.name for t in state.data.get("tools") or [] if isinstance(t, AgentTool) and not is_carrying(t)]
        if names:
            logger.warning(
                "Agents inside tools do not get the run's store, because no hook runs before the tools. "
                "Register the ToolResultOffloadHook under `before_tool` as well.",
                extra={"tools": names},
            )
