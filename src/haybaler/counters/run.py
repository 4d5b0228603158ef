"""The counter of one run: counts each message once, off the event loop where there is much."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from haystack.dataclasses import ChatMessage
from haystack.tools import ToolsType

from haybaler.counters.guarded import INLINE_CHARS, GuardedCounter
from haybaler.counters.learned import Judged, LearnedSizes
from haybaler.counters.likely import is_foreign
from haybaler.counters.rendering import is_short, rendered, words_in
from haybaler.effects import Effect, Steps, await_effect, in_turn, in_worker, perform, perform_async
from haybaler.slices import in_slices
from haybaler.turns import run_in_turn
from haybaler.workers import run_in_worker

# How many messages are counted where the caller is, at 10 µs each.
INLINE_MESSAGES = 160


class _Sized(NamedTuple):
    message: ChatMessage
    tokens: int


class RunTokenCounter:
    """
    Wraps a counter for the length of one run.

    The size of a conversation is the sum of the sizes of its messages. A message is counted once, as long as the same
    object is asked for; Haystack replaces messages and does not change them. A counter that raises is not asked again
    in this run: from then on sizes are estimated from the length of the text, with one warning.

    Sizes are in the counter's own tokens until the provider's first figure is learned, and in the provider's from then
    on.

    :param counter: The user's counter; only `count` is needed, `count_async` is used where it exists. A method
        `likely(message)`, where it has one, judges how a known total is divided among messages; otherwise `count` does.
    """

    def __init__(self, counter: Any) -> None:
        self._counter = GuardedCounter(counter)
        # The message is kept beside its size, so that its id is not given to another one meanwhile.
        self._sizes: dict[int, _Sized] = {}
        self._tools: tuple[list[Any], int] = ([], 0)
        self._judged: dict[int, Judged] = {}
        self._words: dict[int, int] = {}  # of the messages that are judged
        self._learned = LearnedSizes(known_factor=1.0 if self.is_asked else None)

    @classmethod
    def of(cls, counter: Any) -> "RunTokenCounter":
        """
        Return the counter of a run that `counter` is, or wrap it.

        :param counter: Any counter.
        :returns: The wrapped counter.
        """
        return counter if isinstance(counter, cls) else cls(counter)

    def sizes(self, messages: Sequence[ChatMessage]) -> Steps[list[int]]:
        """
        Size every message, counting only those that are new.

        :param messages: The messages.
        :returns: Steps that end in the sizes in tokens; size i belongs to message i.
        """
        if fresh := _unknown(messages, self._sizes):
            yield from await_effect(Effect(lambda: self._count_each(fresh), lambda: self._count_each_async(fresh)))
        if self._learned.is_scaled:
            yield from self._judge(messages)
        return self._known_sizes(messages)

    def _known_sizes(self, messages: Sequence[ChatMessage]) -> list[int]:
        keys = list(map(id, messages))
        if not self._learned.is_scaled:
            return [sized.tokens for sized in map(self._sizes.__getitem__, keys)]
        return list(map(round, self._learned.sizes(keys, map(self._judged.__getitem__, keys))))

    @property
    def is_asked(self) -> bool:
        """Whether the counter only knows whole conversations, and is asked by `ask`; single messages are estimated."""
        return self._counter.is_asked

    @property
    def has_learned(self) -> bool:
        """Whether any figure of the provider's has been learned in this run."""
        return self._learned.has_figures

    def learn(self, messages: Sequence[ChatMessage], tokens: int) -> Steps[None]:
        """
        Take a figure of the provider's.

        :param messages: The messages that it covers.
        :param tokens: The figure, without what is not messages.
        :returns: Steps without a result.
        """
        yield from self._judge(messages)
        self._learned.learn({id(message): self._judged[id(message)] for message in messages}, tokens)

    def ask(self, messages: Sequence[ChatMessage], tools: ToolsType | None) -> Steps[int]:
        """
        Have the user's counter count a whole conversation, and learn from it. One call, for one `is_asked`.

        :param messages: The conversation, oldest first, with every result's call.
        :param tools: The tools of the next call of the model.
        :returns: Steps that end in the size of both in tokens; an estimate if the counter fails, which is not asked
            again in this run.
        """
        tools_size = yield from self.tools_size(tools)
        counted = yield from self._counter.ask(list(messages), tools)
        if counted is None:
            return sum((yield from self.sizes(messages))) + tools_size
        yield from self.learn(messages, counted - tools_size)
        return counted

    def judged(self, messages: Sequence[ChatMessage]) -> Steps[float]:
        """
        Judge how many tokens messages probably have, figures of the provider's left aside.

        :param messages: The messages.
        :returns: Steps that end in tokens.
        """
        yield from self._judge(messages)
        return sum(self._judged[id(message)].tokens for message in messages)

    def least(self, messages: Sequence[ChatMessage]) -> Steps[int]:
        """
        Find how many tokens messages have at least, whatever the tokenizer.

        :param messages: The messages.
        :returns: Steps that end in the number of their words.
        """
        yield from self._judge(messages)
        return sum(self._words[id(message)] for message in messages)

    def _judge(self, messages: Sequence[ChatMessage]) -> Steps[None]:
        fresh = _unknown(messages, self._judged)
        if fresh and is_short(fresh, INLINE_CHARS):
            yield from in_turn(self._judge_each, fresh)
        elif fresh:
            yield from in_worker(self._judge_each, fresh)

    def _judge_each(self, messages: Sequence[ChatMessage]) -> None:
        for message in in_slices(messages):
            if id(message) not in self._sizes:
                self._count_each([message])
            counted = self._sizes[id(message)].tokens
            likely = self._counter.likely(message)
            self._judged[id(message)] = (
                Judged(float(counted)) if likely is None else Judged(likely, is_foreign(rendered([message])))
            )
            self._words[id(message)] = words_in(message)

    def size(self, message: ChatMessage) -> int:
        """
        Size one message where the caller is; for short messages, or in a worker.

        :param message: The message.
        :returns: Tokens.
        """
        if (sized := self._sizes.get(id(message))) is None:
            sized = self._sizes[id(message)] = _Sized(message, self._counter.count([message], None))
        if not self._learned.is_scaled:
            return sized.tokens
        if id(message) not in self._judged:
            self._judge_each([message])
        return self._known_sizes([message])[0]

    def most_tokens(self, size: int) -> int | None:
        """
        Bound what a message of text has, without counting it.

        :param size: The bytes of the message as the counters here render it.
        :returns: Tokens; None if that is not known.
        """
        return None if self._learned.is_scaled else self._counter.most_tokens(size)

    def least_tokens(self, characters: int) -> int | None:
        """
        Bound what a message has at least, without counting it.

        :param characters: The length of its text, or of a part of it.
        :returns: Tokens; None if that is not known.
        """
        return None if self._learned.is_scaled else self._counter.least_tokens(characters)

    def tools_size(self, tools: ToolsType | None) -> Steps[int]:
        """
        Size the schemas of tools, once as long as the tools are the same.

        :param tools: The tools of the next call of the model.
        :returns: Steps that end in tokens.
        """
        listed = list(tools or [])
        known, size = self._tools
        if len(listed) != len(known) or any(a is not b for a, b in zip(listed, known, strict=True)):
            asked = self._counter
            count = Effect(lambda: asked.count([], listed), lambda: asked.count_async([], listed))
            size = yield from await_effect(count)
            self._tools = (listed, size)
        return size

    def keep_only(self, messages: Sequence[ChatMessage]) -> None:
        """
        Forget the sizes of all other messages.

        :param messages: The conversation as it is now.
        """
        if not (self._sizes or self._judged or self._learned.has_figures):
            return  # as in a run that no counter has been asked in
        kept = {id(message) for message in messages}
        self._sizes = {key: sized for key, sized in self._sizes.items() if key in kept}
        self._judged = {key: size for key, size in self._judged.items() if key in kept}
        self._words = {key: words for key, words in self._words.items() if key in kept}
        self._learned.keep_only(kept)

    def keep_at_most(self, messages: Sequence[ChatMessage]) -> None:
        """
        Forget the sizes of other messages if there must be some: more are known than there are messages.

        :param messages: The conversation as it is now.
        """
        if len(self._sizes) > len(messages):
            self.keep_only(messages)

    def count(self, messages: list[ChatMessage], tools: ToolsType | None = None) -> int:
        """
        Count the tokens of messages and tools, so that any compactor can use this counter.

        :param messages: The messages, oldest first.
        :param tools: Tools whose schemas are sent with the messages.
        :returns: Tokens.
        """
        return perform(self._total(messages, tools))

    async def count_async(self, messages: list[ChatMessage], tools: ToolsType | None = None) -> int:
        """
        Count the tokens of messages and tools without blocking the event loop.

        :param messages: The messages, oldest first.
        :param tools: Tools whose schemas are sent with the messages.
        :returns: Tokens.
        """
        return await perform_async(self._total(messages, tools))

    def _total(self, messages: Sequence[ChatMessage], tools: ToolsType | None) -> Steps[int]:
        sizes = yield from self.sizes(messages)
        return sum(sizes) + ((yield from self.tools_size(tools)) if tools else 0)

    def _count_each(self, messages: Sequence[ChatMessage]) -> None:
        for message in in_slices(messages):
            self._sizes[id(message)] = _Sized(message, self._counter.count([message], None))

    async def _count_each_async(self, messages: Sequence[ChatMessage]) -> None:
        if self._counter.counts_inline is None and self._counter.counts_async:
            for message in messages:
                tokens = await self._counter.count_async([message], None)
                self._sizes[id(message)] = _Sized(message, tokens)
        elif self.is_little(messages):
            await run_in_turn(self._count_each, messages)
        else:
            await run_in_worker(self._count_each, messages)

    def is_little(self, messages: Sequence[ChatMessage]) -> bool:
        """Whether messages can be counted where the caller is, within a few milliseconds."""
        is_quick = bool(self._counter.counts_inline) and len(messages) <= INLINE_MESSAGES
        return is_quick and is_short(messages, self._counter.inline_chars)

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the wrapped counter; what is known of the run is not part of it.

        :returns: What the wrapped counter's `to_dict` returns.
        """
        serialized: dict[str, Any] = self._counter.counter.to_dict()
        return serialized


def _unknown(messages: Sequence[ChatMessage], known: Mapping[int, object]) -> list[ChatMessage]:
    # Mostly everything is known, and a long conversation is walked through many times.
    if all(map(known.__contains__, map(id, messages))):
        return []
    return [message for message in messages if id(message) not in known]
