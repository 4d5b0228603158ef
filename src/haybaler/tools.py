"""The toolset through which a model reads stored results back, and how its tools find the run's store."""

import copy
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict
from typing import Any, NoReturn, Self

from haystack.components.agents.state.state import State
from haystack.core.serialization import generate_qualified_class_name
from haystack.tools.tool import Tool
from haystack.tools.toolset import Toolset
from haystack.utils.deserialization import deserialize_component_inplace

from haybaler.effects import Steps, perform, perform_async
from haybaler.errors import ConfigurationError
from haybaler.hooks.carrying import carrying
from haybaler.hooks.context import own_store, run_store, run_writes
from haybaler.lifecycle import run_lifecycle
from haybaler.readback.paging import Answer
from haybaler.readback.reading import ReadBackLimits
from haybaler.readback.refusals import NO_STORE, refusal
from haybaler.readback.specs import SPECS, ToolSpec
from haybaler.run_writes import RunWrites
from haybaler.serialization import serialized
from haybaler.stores.unwritten import HeldEntry

logger = logging.getLogger(__name__)

Functions = tuple[Callable[..., Answer], Callable[..., Coroutine[Any, Any, Answer]]]


class ResultTool(Tool):
    """
    A tool that reads from the run's own store, or else from the one that it was made with.

    Which store a run has stands in the Agent's State. The Agent does not run a tool that asks for the State beside the
    other calls of a step, so the tools of one run are bound to its store as soon as it is known (see `bind_tools`).

    :param spec: What the tool is called, how it is described, and what it does.
    :param store: The store for runs without one of their own, or None.
    :param limits: How much one call may read.
    """

    def __init__(self, spec: ToolSpec, store: Any, limits: ReadBackLimits) -> None:
        self.spec = spec
        self.store = store
        self.limits = limits
        self.of_one_run = False
        function, async_function = _unbound(spec, store, limits)
        super().__init__(
            name=spec.name,
            description=spec.description,
            parameters=spec.parameters(limits),
            function=function,
            async_function=async_function,
            outputs_to_string={"raw_result": True},  # the content parts of images and files; a text stays a string
        )

    def for_run(self) -> Self:
        """
        Return a copy for a single run, which may be bound to the run's store.

        :returns: The copy. Making the tool anew would check its JSON schema again, which takes milliseconds.
        """
        own = copy.copy(self)
        own.of_one_run = True
        own.function, own.async_function = _unbound(self.spec, self.store, self.limits)
        return own

    def bind(self, store: Any | None, writes: RunWrites | None = None) -> None:
        """
        Bind the tool to a store, so that its calls run side by side. A tool that several runs share is left alone.

        :param store: The run's own store, or None if it has none.
        :param writes: What the run has in flight; read before the store.
        """
        chosen = self.store if store is None else store
        if self.of_one_run:
            self.function, self.async_function = (
                _unbound(self.spec, chosen, self.limits)
                if chosen is None
                else _bound(self.spec, chosen, self.limits, writes)
            )

    def invoke(self, /, **kwargs: Any) -> Any:
        """As `Tool.invoke`, but takes whatever names of arguments a model makes up, also `self`; raises nothing."""
        return self.function(**kwargs) if self.function else None

    async def invoke_async(self, /, **kwargs: Any) -> Any:
        """As `Tool.invoke_async`, but takes whatever names of arguments a model makes up; raises nothing."""
        return await self.async_function(**kwargs) if self.async_function else None

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the tool, for lists that hold it without its toolset.

        :returns: A dictionary with `type` and `data`.
        :raises NotSerializableError: If the store cannot be serialized.
        """
        return _envelope(self, name=self.name, store=self.store, limits=self.limits)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "ResultTool":
        """
        Build the tool again.

        :param data: What `to_dict` returned.
        :returns: The tool.
        """
        settings = _settings(data)
        return cls(SPECS[settings.pop("name")], settings.pop("store"), ReadBackLimits(**settings))


class ToolResultToolset(Toolset):
    """
    Two tools with which a model reads stored tool results back: `read_tool_result` and `search_tool_result`.

    ```python
    agent = Agent(chat_generator=..., tools=[web_search, ToolResultToolset(store)], hooks=...)
    ```

    Whatever goes wrong, the model gets a sentence that it can act on, never an exception. A store that the run brings
    along in its `hook_context` under `RESULT_STORE_CONTEXT_KEY` takes the place of the toolset's own.

    :param store: The store for runs that bring none along: one of haybaler's, or any object with `read`.
    :param page_chars: The most characters of one page, and of all matches of one search.
    :param max_matches: The most matches of one search.
    :param max_file_bytes: The most bytes of an image or file; by default 20 MB, which fits into the largest request
        that the big providers take.
    :raises ConfigurationError: If a limit is not a positive whole number.
    """

    def __init__(
        self,
        store: Any | None = None,
        *,
        page_chars: int = 8000,
        max_matches: int = 20,
        max_file_bytes: int = 20_000_000,
    ) -> None:
        self.store = store
        self.limits = ReadBackLimits(page_chars=page_chars, max_matches=max_matches, max_file_bytes=max_file_bytes)
        super().__init__(tools=[ResultTool(spec, store, self.limits) for spec in SPECS.values()])

    def spawn(self, selected_tool_names: set[str] | None = None) -> Self:
        """
        Return a copy for a single run, so that concurrent runs with stores of their own never meet.

        :param selected_tool_names: The tools to which the run is restricted; None for both.
        :returns: The copy. Its tools find the run's store themselves, and can be bound to it.
        """
        spawned = copy.copy(self)
        spawned.tools = [
            tool.for_run()
            for tool in self.tools
            if isinstance(tool, ResultTool) and (selected_tool_names is None or tool.name in selected_tool_names)
        ]
        return spawned

    def add(self, tool: Tool) -> NoReturn:
        """
        Refuse further tools.

        :param tool: A tool.
        :raises ConfigurationError: Always.
        """
        raise ConfigurationError(f"Put {tool.name!r} into the Agent's list of tools, beside the ToolResultToolset.")

    def warm_up(self) -> None:
        """Warm up the store, if it can be. One that is away for a moment does not end a run: that is logged."""
        perform(run_lifecycle("warm_up", self.store))

    async def warm_up_async(self) -> None:
        """Warm up the store, as `warm_up` does, without blocking the event loop."""
        await perform_async(run_lifecycle("warm_up", self.store))

    def close(self) -> None:
        """Close the store, if it can be. The next use reopens it."""
        perform(run_lifecycle("close", self.store))

    async def close_async(self) -> None:
        """Close the store, if it can be, without blocking the event loop. The next use reopens it."""
        await perform_async(run_lifecycle("close", self.store))

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the toolset.

        :returns: A dictionary with `type` and `data`.
        :raises NotSerializableError: If the store cannot be serialized.
        """
        return _envelope(self, store=self.store, limits=self.limits)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """
        Build the toolset again.

        :param data: What `to_dict` returned.
        :returns: The toolset.
        """
        return cls(**_settings(data))


def bind_tools(state: State) -> None:
    """
    Bind the read-back tools of a run to the run's store, so that several calls of one step run side by side, and let
    the runs inside the run's other tools find it.

    Hooks call it before the tools of a step are called; until then the read-back tools find the store by themselves,
    one after another, and runs inside other tools do not.

    :param state: The Agent's live `State`; the list of the step's tools is changed, the tools of other runs are not.
    """
    own, store = own_store(state), run_store(state)
    tools: list[Tool] = state.data.get("tools") or []
    for place, tool in enumerate(tools):
        if isinstance(tool, ResultTool):
            tool.bind(store, run_writes(state))
        elif own is not None:
            tools[place] = carrying(tool, own)


def _bound(spec: ToolSpec, store: Any, limits: ReadBackLimits, writes: RunWrites | None) -> Functions:
    def function(**arguments: Any) -> Answer:
        return perform(_answer(spec, store, arguments, limits, writes))

    async def async_function(**arguments: Any) -> Answer:
        return await perform_async(_answer(spec, store, arguments, limits, writes))

    return function, async_function


def _unbound(spec: ToolSpec, store: Any, limits: ReadBackLimits) -> Functions:
    # The Agent looks at the annotation `State` to know that it has to be passed.
    def function(*, state: State | None = None, **arguments: Any) -> Answer:
        return perform(_answer(spec, _store_of(state, store), arguments, limits, _writes_of(state)))

    async def async_function(*, state: State | None = None, **arguments: Any) -> Answer:
        return await perform_async(_answer(spec, _store_of(state, store), arguments, limits, _writes_of(state)))

    return function, async_function


def _store_of(state: State | None, default: Any) -> Any:
    store = run_store(state) if isinstance(state, State) else None
    return default if store is None else store


def _writes_of(state: State | None) -> RunWrites | None:
    return run_writes(state) if isinstance(state, State) else None


def _answer(
    spec: ToolSpec, store: Any, arguments: Mapping[str, Any], limits: ReadBackLimits, writes: RunWrites | None
) -> Steps[Answer]:
    held = None if writes is None else writes.held(arguments.get("reference"))
    if held is not None:
        store = HeldEntry(held)
    if store is None:
        logger.warning("A stored tool result was asked for, but the run has no store.", extra={"tool": spec.name})
        return NO_STORE
    try:
        return (yield from spec.steps(store, arguments, limits))
    except Exception as error:  # noqa: BLE001 - whatever it is, the model gets a sentence and the run goes on
        return refusal(error, tool=spec.name, reference=arguments.get("reference"), store=store)


def _envelope(part: object, *, limits: ReadBackLimits, store: Any, **settings: Any) -> dict[str, Any]:
    data = {**settings, "store": None if store is None else serialized(store, "store"), **asdict(limits)}
    return {"type": generate_qualified_class_name(type(part)), "data": data}


def _settings(data: dict[str, Any]) -> dict[str, Any]:
    settings = dict(data["data"])
    if settings.get("store") is not None:
        deserialize_component_inplace(settings, key="store")
    return settings
