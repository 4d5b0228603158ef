"""What haybaler expects of a compactor, and the base class of its own."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol, Self

from haystack.core.serialization import default_from_dict
from haystack.dataclasses import ChatMessage

from haybaler.conversation import repaired
from haybaler.counters.protocol import AnyTokenCounter, TokenCounter
from haybaler.counters.run import RunTokenCounter
from haybaler.effects import Steps, in_worker, perform, perform_async


class Compactor(Protocol):
    """
    Rewrites a conversation into a smaller one that carries the same working context.

    1. Return None unless the conversation really gets smaller.
    2. Return a new list; touch neither the list that was given nor its messages.
    3. Keep calls and results together: providers reject a call without all its results, and a result without its call.

    A compactor may also have `for_run(hook_context) -> Compactor`: a cheap copy bound to one run. `CompactionHook`
    calls it with the run's `hook_context` (the mapping that was given to the Agent, see `haybaler.hooks.context`).
    """

    def compact(
        self, messages: list[ChatMessage], target_tokens: int, token_counter: TokenCounter
    ) -> list[ChatMessage] | None:
        """
        Return a smaller replacement for a conversation.

        :param messages: The conversation, oldest first.
        :param target_tokens: The size to come under, in tokens of `token_counter`; a goal, not a guarantee.
        :param token_counter: Measures messages.
        :returns: The replacement, or None to leave the conversation as it is.
        """
        ...

    async def compact_async(
        self, messages: list[ChatMessage], target_tokens: int, token_counter: TokenCounter
    ) -> list[ChatMessage] | None:
        """
        Return a smaller replacement for a conversation without blocking the event loop.

        :param messages: The conversation, oldest first.
        :param target_tokens: The size to come under, in tokens of `token_counter`; a goal, not a guarantee.
        :param token_counter: Measures messages.
        :returns: The replacement, or None to leave the conversation as it is.
        """
        ...

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the compactor's settings.

        :returns: A dictionary with `type` and `init_parameters`.
        """
        ...

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Compactor":
        """
        Build a compactor with the same settings.

        :param data: What `to_dict` returned.
        :returns: The compactor.
        """
        ...


class SteppedCompactor(ABC):
    """
    Base class of haybaler's compactors: one body of logic for both colours, and the laws they share.

    A subclass only gets conversations that are over the target and in which every call is paired with its results.
    """

    def for_run(self, hook_context: Mapping[str, Any]) -> Self:  # noqa: ARG002
        """
        Return a compactor bound to one run.

        :param hook_context: The run's context.
        :returns: The compactor itself, where nothing of the run matters to it.
        """
        return self

    def compact(
        self, messages: list[ChatMessage], target_tokens: int, token_counter: AnyTokenCounter
    ) -> list[ChatMessage] | None:
        """
        Return a smaller replacement for a conversation.

        :param messages: The conversation, oldest first; neither the list nor its messages are touched.
        :param target_tokens: The size to come under, in tokens of `token_counter`.
        :param token_counter: Measures messages; a counter of Haystack's own will do.
        :returns: The replacement, or None if the conversation fits or nothing can be gained.
        """
        return perform(self._steps(messages, target_tokens, token_counter))

    async def compact_async(
        self, messages: list[ChatMessage], target_tokens: int, token_counter: AnyTokenCounter
    ) -> list[ChatMessage] | None:
        """
        Return a smaller replacement for a conversation without blocking the event loop.

        :param messages: The conversation, oldest first; neither the list nor its messages are touched.
        :param target_tokens: The size to come under, in tokens of `token_counter`.
        :param token_counter: Measures messages; a counter of Haystack's own will do.
        :returns: The replacement, or None if the conversation fits or nothing can be gained.
        """
        return await perform_async(self._steps(messages, target_tokens, token_counter))

    def _steps(
        self, messages: list[ChatMessage], target_tokens: int, token_counter: AnyTokenCounter
    ) -> Steps[list[ChatMessage] | None]:
        counter = RunTokenCounter.of(token_counter)
        before = sum((yield from counter.sizes(messages)))
        if before <= target_tokens:
            return None
        after = paired = yield from in_worker(repaired, messages)
        sizes = yield from counter.sizes(paired)
        total = sum(sizes)
        if total > target_tokens:
            rewritten = yield from self._rewrite(paired, sizes, target_tokens, counter)
            if rewritten is not None:
                rewritten_total = sum((yield from counter.sizes(rewritten)))
                if rewritten_total < total:
                    after, total = rewritten, rewritten_total
        return after if total < before else None

    @abstractmethod
    def _rewrite(
        self, messages: list[ChatMessage], sizes: list[int], target_tokens: int, counter: RunTokenCounter
    ) -> Steps[list[ChatMessage] | None]:
        """
        Rewrite a conversation that is too large.

        :param messages: The conversation, oldest first, with every call paired.
        :param sizes: Size i belongs to message i, in tokens.
        :param target_tokens: The size to come under.
        :param counter: Sizes new messages.
        :returns: Steps that end in the new conversation, or None.
        """

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the compactor's settings.

        :returns: A dictionary with `type` and `init_parameters`.
        """

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """
        Build a compactor with the same settings.

        :param data: What `to_dict` returned.
        :returns: The compactor.
        """
        return default_from_dict(cls, data)
