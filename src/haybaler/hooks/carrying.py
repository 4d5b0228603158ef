"""Tools that hand the store of their run on to the runs inside them."""

from typing import Any

from haystack.tools.tool import Tool

from haybaler.hooks.context import inside_tool_call

_CARRIED = "_haybaler_carried"


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
    original, carried = vars(tool).get(_CARRIED, (tool, None))
    if carried is store or hasattr(type(original), "__del__"):
        return tool

    def invoke(**arguments: Any) -> Any:
        with inside_tool_call(store):
            return original.invoke(**arguments)

    async def invoke_async(**arguments: Any) -> Any:
        with inside_tool_call(store):
            return await original.invoke_async(**arguments)

    # Not `copy.copy`: neither the constructor nor whatever the class does when it is copied has to run.
    stand_in: Tool = object.__new__(type(original))
    vars(stand_in).update(vars(original), invoke=invoke, invoke_async=invoke_async, **{_CARRIED: (original, store)})
    return stand_in


def is_carrying(tool: Tool) -> bool:
    """
    Whether the runs inside a tool's calls find the store of its run.

    :param tool: Any tool.
    :returns: True for a stand-in that `carrying` made.
    """
    return _CARRIED in vars(tool)
