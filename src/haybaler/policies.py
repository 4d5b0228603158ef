"""Which fresh results `ToolResultOffloadHook` sends to the store."""

from typing import Any, ClassVar, Protocol, Self

from haystack.components.agents.state.state import State
from haystack.core.serialization import default_from_dict, default_to_dict

from haybaler.counters.approximate import ApproximateTokenCounter
from haybaler.errors import ConfigurationError


class OffloadPolicy(Protocol):
    """
    Decides for one fresh result whether it goes to the store.

    A policy that is also a `TokenOffloadPolicy` is asked as such.

    A class whose policies only compute, within microseconds, may say so with an attribute `decides_inline` that is
    true: they are then asked directly on the event loop. Others are asked in a worker thread. A subclass says it anew.
    """

    def should_offload(self, tool_name: str, result: str, state: State) -> bool:
        """
        Decide whether a result is offloaded.

        :param tool_name: The tool that gave the result.
        :param result: The result as text; for images and files, the base64 payload that stands in the conversation.
        :param state: The Agent's live `State`.
        :returns: True to offload it.
        """
        ...

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the policy.

        :returns: A dictionary with `type` and `init_parameters`.
        """
        ...

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "OffloadPolicy":
        """
        Build a policy with the same settings.

        :param data: What `to_dict` returned.
        :returns: The policy.
        """
        ...


class TokenOffloadPolicy(Protocol):
    """Decides by the size of the whole message, as the hook's own counter sees it, images and files included."""

    def should_offload_tokens(self, tool_name: str, tokens: int, state: State) -> bool:
        """
        Decide whether a result is offloaded.

        :param tool_name: The tool that gave the result.
        :param tokens: The size of the result's message.
        :param state: The Agent's live `State`.
        :returns: True to offload it.
        """
        ...


# What `ToolResultOffloadHook` takes.
AnyOffloadPolicy = OffloadPolicy | TokenOffloadPolicy


class _Policy:
    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the policy.

        :returns: A dictionary with `type` and `init_parameters`.
        """
        return default_to_dict(self, **vars(self))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """
        Build a policy with the same settings.

        :param data: What `to_dict` returned.
        :returns: The policy.
        """
        return default_from_dict(cls, data)


class AlwaysOffload(_Policy):
    """Offload every result for which a pointer is shorter."""

    decides_inline: ClassVar[bool] = True

    def should_offload(self, tool_name: str, result: str, state: State) -> bool:  # noqa: ARG002
        """
        Decide whether a result is offloaded.

        :param tool_name: Not looked at.
        :param result: Not looked at.
        :param state: Not looked at.
        :returns: True.
        """
        return True


class NeverOffload(_Policy):
    """Keep every result whole, to except a tool from a wildcard."""

    decides_inline: ClassVar[bool] = True

    def should_offload(self, tool_name: str, result: str, state: State) -> bool:  # noqa: ARG002
        """
        Decide whether a result is offloaded.

        :param tool_name: Not looked at.
        :param result: Not looked at.
        :param state: Not looked at.
        :returns: False.
        """
        return False


class OffloadOverChars(_Policy):
    """
    Offload a result that is longer than a number of characters.

    :param threshold: Characters; a result of exactly this length stays.
    :raises ConfigurationError: If `threshold` is negative.
    """

    decides_inline: ClassVar[bool] = True

    def __init__(self, threshold: int) -> None:
        self.threshold = _checked(threshold)

    def should_offload(self, tool_name: str, result: str, state: State) -> bool:  # noqa: ARG002
        """
        Decide whether a result is offloaded.

        :param tool_name: Not looked at.
        :param result: The result; the base64 payload of images and files counts.
        :param state: Not looked at.
        :returns: True if it is longer than the threshold.
        """
        return len(result) > self.threshold


class OffloadOverTokens(_Policy):
    """
    Offload a result that is larger than a number of tokens, as the hook's counter sees it.

    :param threshold: Tokens; a result of exactly this size stays.
    :raises ConfigurationError: If `threshold` is negative.
    """

    decides_inline: ClassVar[bool] = True

    def __init__(self, threshold: int) -> None:
        self.threshold = _checked(threshold)

    def should_offload_tokens(self, tool_name: str, tokens: int, state: State) -> bool:  # noqa: ARG002
        """
        Decide whether a result is offloaded.

        :param tool_name: Not looked at.
        :param tokens: The size of the result's message, counted by the hook.
        :param state: Not looked at.
        :returns: True if it is larger than the threshold.
        """
        return tokens > self.threshold

    def should_offload(self, tool_name: str, result: str, state: State) -> bool:  # noqa: ARG002
        """
        Decide whether a result is offloaded, for hooks that hand over text only, such as Haystack's own.

        :param tool_name: Not looked at.
        :param result: The result; its tokens are estimated from its length.
        :param state: Not looked at.
        :returns: True if the estimate is larger than the threshold.
        """
        return len(result) / ApproximateTokenCounter().chars_per_token > self.threshold


def decides_inline(policy: object) -> bool:
    """
    Whether a policy may be asked on the event loop.

    :param policy: Any policy.
    :returns: True if its own class says so; what a subclass does is not known to its base class.
    """
    return bool(vars(type(policy)).get("decides_inline"))


def goes_by_tokens(policy: object) -> bool:
    """
    Whether a policy is a `TokenOffloadPolicy`.

    :param policy: Any policy.
    :returns: True if it can be asked as one.
    """
    try:
        return hasattr(policy, "should_offload_tokens")
    except Exception:  # noqa: BLE001 - one policy must not end the run
        return False


def _checked(threshold: int) -> int:
    if threshold < 0:
        raise ConfigurationError(f"`threshold` must be at least 0, got {threshold}.")
    return threshold
