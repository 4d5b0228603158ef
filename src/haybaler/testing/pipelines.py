"""Law 9 in a real Haystack Pipeline, which deep-copies the inputs of its components."""

from functools import partial
from typing import Any

from haystack import Pipeline, component

from haybaler.testing.access import Access
from haybaler.testing.contract import Check, StoreContract


@component
class _Writer:
    """Writes to the store that it is given as an input, as an Agent does with the store in its `hook_context`."""

    @component.output_types(reference=str)
    def run(self, context: dict[str, Any]) -> dict[str, Any]:
        return {"reference": context["store"].write(key="key", content="content")}

    @component.output_types(reference=str)
    async def run_async(self, context: dict[str, Any]) -> dict[str, Any]:
        return {"reference": await context["store"].write_async(key="key", content="content")}


class PipelineLaws(StoreContract):
    """Law 9."""

    def test_a_pipeline_writes_to_the_callers_store(self, check: Check) -> None:
        async def law(access: Access) -> None:
            for store in (access.store, access.store.scoped("run")):
                inputs: dict[str, Any] = {"writer": {"context": {"store": store}}}
                outputs = await access.call(
                    access.colour.writes,
                    partial(_pipeline().run, inputs),
                    partial(_pipeline().run_async, inputs),
                )
                assert outputs["writer"]["reference"] == store.reference("key")
                assert await access.to(store).read(store.reference("key")) == "content"

        check(law)


def _pipeline() -> Pipeline:
    pipeline = Pipeline()
    pipeline.add_component("writer", _Writer())
    return pipeline
