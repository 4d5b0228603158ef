"""A compactor that replaces older results by a short placeholder."""

from typing import Any

from haystack.core.serialization import default_to_dict
from haystack.dataclasses import ChatMessage

from haybaler.compactors.protocol import SteppedCompactor
from haybaler.counters.run import RunTokenCounter
from haybaler.effects import Steps, in_worker
from haybaler.errors import ConfigurationError
from haybaler.framing import name_in_words
from haybaler.planning import unprotected_results
from haybaler.references import COMPACTION_META, OFFLOADED_META, compaction_mark, is_read_back
from haybaler.slices import in_slices
from haybaler.swaps import with_results

STRATEGY = "tool_result_pruning"
DEFAULT_PLACEHOLDER = "[Tool result removed to free up context. Call `{tool_name}` again if you need it.]"


class ToolResultPruningCompactor(SteppedCompactor):
    """
    Replaces the content of older, large tool results by a placeholder, oldest first, until the target is reached.

    Every call keeps its result, so the model sees what it ran and can run it again. Results that haybaler's toolset
    read back are left alone.

    :param min_keep_steps: How many of the newest tool-calling steps keep their results whole, whatever the target.
    :param min_tokens: Only results of more than this many tokens are replaced.
    :param placeholder: What stands in place of a result; `{tool_name}` becomes the tool's name, as a
        JSON string if it does not look like one.
    :param skip_meta_keys: Results whose metadata has one of these keys are left alone. The default keeps the pointers
        to stored results.
    :raises ConfigurationError: If `min_keep_steps` is less than 1 or `min_tokens` is negative.
    """

    def __init__(
        self,
        *,
        min_keep_steps: int = 1,
        min_tokens: int = 200,
        placeholder: str = DEFAULT_PLACEHOLDER,
        skip_meta_keys: tuple[str, ...] = (OFFLOADED_META,),
    ) -> None:
        check_limits(min_keep_steps=min_keep_steps, min_tokens=min_tokens)
        self.min_keep_steps = min_keep_steps
        self.min_tokens = min_tokens
        self.placeholder = placeholder
        self.skip_meta_keys = tuple(skip_meta_keys)

    def _rewrite(
        self, messages: list[ChatMessage], sizes: list[int], target_tokens: int, counter: RunTokenCounter
    ) -> Steps[list[ChatMessage] | None]:
        return (yield from in_worker(self._pruned, messages, sizes, target_tokens, counter))

    def _pruned(
        self, messages: list[ChatMessage], sizes: list[int], target_tokens: int, counter: RunTokenCounter
    ) -> list[ChatMessage]:
        pruned = list(messages)
        surplus = sum(sizes) - target_tokens
        for index in in_slices(unprotected_results(messages, self.min_keep_steps)):
            if surplus <= 0:
                break
            if not self._may_prune(messages[index], sizes[index]):
                continue
            placeholder = self._placeholder_for(messages[index], sizes[index])
            saving = sizes[index] - counter.size(placeholder)
            if saving > 0:
                pruned[index] = placeholder
                surplus -= saving
        return pruned

    def _may_prune(self, message: ChatMessage, tokens: int) -> bool:
        return (
            tokens > self.min_tokens
            and compaction_mark(message) is None
            and not any(key in message.meta for key in self.skip_meta_keys)
            and not is_read_back(message)
        )

    def _placeholder_for(self, message: ChatMessage, tokens: int) -> ChatMessage:
        # `replace` leaves other braces of a custom placeholder, such as JSON, alone.
        texts = {
            place: self.placeholder.replace("{tool_name}", name_in_words(result.origin.tool_name))
            for place, result in enumerate(message.tool_call_results)
        }
        return with_results(message, texts, {COMPACTION_META: {"strategy": STRATEGY, "original_tokens": tokens}})

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the compactor.

        :returns: A dictionary with `type` and `init_parameters`.
        """
        return default_to_dict(
            self,
            min_keep_steps=self.min_keep_steps,
            min_tokens=self.min_tokens,
            placeholder=self.placeholder,
            skip_meta_keys=list(self.skip_meta_keys),
        )


def check_limits(*, min_keep_steps: int, min_tokens: int, preview_chars: int = 0) -> None:
    """
    Check the limits that the compactors of tool results share.

    :param min_keep_steps: Newest tool-calling steps to keep whole.
    :param min_tokens: The size up to which results are left alone.
    :param preview_chars: Characters of a preview.
    :raises ConfigurationError: If one of them is out of range.
    """
    if min_keep_steps < 1:
        raise ConfigurationError(
            f"`min_keep_steps` must be at least 1, got {min_keep_steps}: the model has not acted on the newest results."
        )
    if min_tokens < 0:
        raise ConfigurationError(f"`min_tokens` must be at least 0, got {min_tokens}.")
    if preview_chars < 0:
        raise ConfigurationError(f"`preview_chars` must be at least 0, got {preview_chars}.")
