"""How full the model's window is before a call: from the provider's last figure, and from what came since."""

from collections.abc import Sequence
from operator import is_
from typing import Any

from haystack.components.agents.state.state import State
from haystack.dataclasses import ChatMessage

from haybaler.calibration import Anchor, Fill, overhead_of
from haybaler.conversation import last_assistant_index
from haybaler.counters.run import RunTokenCounter
from haybaler.effects import Steps
from haybaler.hooks.record import RunRecord
from haybaler.usage import nearest, plain_reading, readings

# A counter that has to be asked is asked from this part of the trigger on; from the second, once its scale is known.
ASK_FROM = (0.5, 0.9)


def measure(state: State, record: RunRecord, token_counter: Any, *, context_window: int, trigger: float) -> Steps[Fill]:
    """
    Measure the next request, and learn from the provider's figure if there is a new one.

    :param state: The Agent's live `State`; it is only read.
    :param record: The run's record; it keeps what is learned.
    :param token_counter: The hook's counter. One that has to be asked is asked if the trigger is near.
    :param context_window: The size of the window, in tokens.
    :param trigger: The fill at which something would be done, in tokens.
    :returns: Steps that end in the fill.
    """
    fill = yield from _estimated(state, record, token_counter, context_window=context_window)
    counter = record.counter(token_counter)
    if not counter.is_asked or fill.tokens < ASK_FROM[counter.has_learned] * trigger:
        return fill
    tokens = yield from counter.ask(state.data.get("messages") or [], state.data.get("tools"))
    return Fill(tokens, (yield from counter.tools_size(state.data.get("tools"))))


def _estimated(state: State, record: RunRecord, token_counter: Any, *, context_window: int) -> Steps[Fill]:
    counter = record.counter(token_counter)
    messages: list[ChatMessage] = state.data.get("messages") or []
    sizes = yield from counter.sizes(messages)
    tools = yield from counter.tools_size(state.data.get("tools"))
    # Without any reply the provider's figure, where there is one, stands for the whole conversation.
    covered = messages[: last_assistant_index(messages) + 1] or messages
    last = record.anchor(token_counter)
    overhead = last.overhead if last else 0
    expected = sum(sizes[: len(covered)]) + tools + overhead
    reported = yield from _reported(state, covered, counter, expected)
    if not reported:
        anchor = Anchor(0, covered, expected, overhead)
    elif last is None or last.reported != reported:
        anchor = yield from _learned(
            record, token_counter, covered, reported=reported, tools=tools, context_window=context_window
        )
        sizes = yield from counter.sizes(messages)
    elif last.covers(covered):
        anchor = last
    else:
        # The same figure, but the messages have changed: somebody cut them, or the last reply came without a figure.
        anchor = Anchor(reported, covered, expected, overhead)
    record.set_anchor(token_counter, anchor)
    record.set_left(token_counter, messages)
    counter.keep_at_most(messages)  # other hooks may have removed some
    return Fill(anchor.tokens + sum(sizes[len(covered) :]), tools + anchor.overhead)


def _reported(state: State, covered: Sequence[ChatMessage], counter: RunTokenCounter, expected: int) -> Steps[int]:
    """Return the provider's figure, or 0. Of several readings, the one that is nearest to what is expected."""
    kept = state.data.get("context_tokens") or 0
    usage = covered[-1].meta.get("usage") if covered else None
    # Another figure than Haystack's own reading was put there by a hook, for the conversation as it is now.
    figures = readings(usage) if usage and kept == plain_reading(usage) else [kept]
    if not any(figures):
        return 0
    # A figure below the number of words does not measure these messages: some chat models leave tool results out.
    least = yield from counter.least(covered)
    return nearest((figure for figure in figures if figure >= least), expected)


def _learned(
    record: RunRecord,
    token_counter: Any,
    covered: Sequence[ChatMessage],
    *,
    reported: int,
    tools: int,
    context_window: int,
) -> Steps[Anchor]:
    counter = record.counter(token_counter)
    last = record.anchor(token_counter)
    measured = yield from _measured(counter, record.left(token_counter), covered, reported - tools)
    if last and last.reported:
        overhead = last.overhead
    else:
        judged = yield from counter.judged(measured)
        overhead = overhead_of(reported, judged + tools, context_window=context_window)
    yield from counter.learn(measured, reported - tools - overhead)
    if measured is covered:
        return Anchor(reported, covered, reported, overhead)
    sizes = yield from counter.sizes(covered)
    return Anchor(reported, covered, sum(sizes) + tools + overhead, overhead)


def _measured(
    counter: RunTokenCounter, left: Sequence[ChatMessage], covered: Sequence[ChatMessage], tokens: int
) -> Steps[Sequence[ChatMessage]]:
    """
    Return the messages that a new figure most likely measures.

    That is what is there, unless somebody has cut the conversation since the model was called: then it may be what the
    last hook left for the model, with the reply.
    """
    if len(left) < len(covered) and all(map(is_, left, covered)):
        return covered
    sent = [*left, *covered[-1:]]
    if not left or not covered:
        return covered
    here = sum((yield from counter.sizes(covered)))
    there = sum((yield from counter.sizes(sent)))
    return covered if abs(here - tokens) <= abs(there - tokens) else sent
