"""The toolset through which a model reads stored results back, and how its tools find the run's store."""

import copy
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, Self

from haystack.components.agents.state.state import State
from haystack.core.serialization import generate_qualified_class_name
from haystack.tools import Tool, Toolset
from haystack.utils.deserialization import deserialize_component_inplace

from haybaler.effects import Steps, perform, perform_async
from haybaler.errors import ConfigurationError
from haybaler.hooks.context import run_store
from haybaler.interop import optional_method
from haybaler.paging import Answer
from haybaler.reading import ReadBackLimits
from haybaler.refusals import NO_STORE, refusal
from haybaler.serialization import serialized
from haybaler.tool_specs import READ, SEARCH, ToolSpec

Function = Callable[..., Answer]
AsyncFunction = Callable[..., Coroutine[Any, Any, Answer]]


class ResultTool(Tool):
    """
    A tool that reads from the run's own store, or else from the one that it was made with.

    Which store a run has stands in the Agent's State. A tool that asks for the State is not run beside other calls of
    the same step, so the tools of one run are bound to its store as soon as it is known (see `bind_tools`).

    :param spec: What the tool is called, how it is described, and what it does.
    :param store: The store for runs without one of their own, or None.
    :param limits: How much one call may read.
    :param of_one_run: Whether the tool belongs to a single run and may be bound.
    """

    def __init__(self, spec: ToolSpec, store: Any, limits: ReadBackLimits, *, of_one_run: bool = False) -> None:
        self.spec = spec
        self.store = store
        self.limits = limits
        self._of_one_run = of_one_run
        function, async_function = self._unbound()
        super().__init__(
            name=spec.name,
            description=spec.description,
            parameters=spec.parameters(limits),
            function=function,
            async_function=async_function,
            outputs_to_string={"raw_result": True},  # content parts of images and files; text stays a string
        )

    def spawn(self) -> "ResultTool":
        """
        Return a copy for a single run.

        :returns: The copy, not bound to a store yet.
        """
        return ResultTool(self.spec, self.store, self.limits, of_one_run=True)

    def bind(self, store: Any | None) -> None:
        """
        Bind the tool to a store, so that its calls run side by side. Tools that are not of one run are left alone.

        :param store: The run's own store, or None if it has none.
        """
        if self._of_one_run:
            chosen = self.store if store is None else store
            self.function, self.async_function = self._unbound() if chosen is None else self._bound(chosen)

    def invoke(self, /, **kwargs: Any) -> Any:
        """Call the tool. Unlike other tools, it takes whatever names of arguments a model makes up, and never raises."""
        return self.function(**kwargs) if self.function else None

    async def invoke_async(self, /, **kwargs: Any) -> Any:
        """Call the tool, as `invoke` does."""
        return await self.async_function(**kwargs) if self.async_function else None
