"""Tools that hand the store of their run on to the runs inside them."""

from dataclasses import dataclass
from typing import Any, Self

from haystack.tools.tool import Tool

from haybaler.hooks.context import inside_tool_call

_CARRIER = "_haybaler_carrier"


@dataclass(frozen=True, slots=True)
class _Carrier:
    """
    Calls a tool, and lets the runs inside the call find a store.

    :param tool: The tool itself.
    :param store: The store.
    """

    tool: Tool
    store: Any

    def invoke(self, /, **arguments: Any) -> Any:
        with inside_tool_call(self.store):
            return self.tool.invoke(**arguments)

    async def invoke_async(self, /, **arguments: Any) -> Any:
        with inside_tool_call(self.store):
            return await self.tool.invoke_async(**arguments)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return the carrier itself: `State.get` deep-copies tools, and not every store can be copied."""
        return self


def carrying(tool: Tool, store: Any) -> Tool:
    """
    Return a stand-in for a tool, whose calls let the runs inside them find a store.

    The context of the run itself is left alone: it is its caller's, who goes on after the run, and after a failed run
    nobody would clear it. What is only set inside the call is gone with the call.

    :param tool: Any tool, also a stand-in.
    :param store: The store.
    :returns: An object of the same class and with the same attributes, which calls the tool itself. A tool that
        releases something when it is collected is returned as it is, since its stand-in would do the same.
    """
    before: _Carrier | None = vars(tool).get(_CARRIER)
    if before is not None and before.store is store:
        return tool
    original = tool if before is None else before.tool
    if hasattr(type(original), "__del__"):
        return original
    carrier = _Carrier(original, store)
    # Not `copy.copy`: neither the constructor nor whatever the class does when it is copied has to run.
    stand_in: Tool = object.__new__(type(original))
    own = {"invoke": carrier.invoke, "invoke_async": carrier.invoke_async, _CARRIER: carrier}
    vars(stand_in).update(vars(original) | own)
    return stand_in


def is_carrying(tool: Tool) -> bool:
    """
    Whether the runs inside a tool's calls find the store of its run.

    :param tool: Any tool.
    :returns: True for a stand-in that `carrying` made.
    """
    return _CARRIER in vars(tool)
