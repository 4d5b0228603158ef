"""
The main job: an async Agent whose conversation compacts itself, and whose old results move into files.

It reads whole files of Python's standard library in a window that is far too small for them, and needs at the end what
stood in the first one. The same run is then made again without haybaler. No key and no network; with `OPENAI_API_KEY`
set, a real model does the research.
"""

import argparse
import asyncio
import pickle
import sys
import tempfile
from contextlib import nullcontext

from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage
from research.model import MODEL, TASK, chat_model
from research.observing import Heartbeat, NotingStore, Observer
from research.source_tools import list_modules, read_module
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from haybaler import CompactionHook, ToolResultOffloadCompactor, ToolResultToolset

WINDOW = 32_000
LEAST_COMPACTIONS = 3


async def research(observer: Observer, *, hooks: list[CompactionHook], read_back: list[ToolResultToolset]) -> str:
    agent = Agent(
        chat_generator=chat_model(observer),
        tools=[list_modules, read_module, *read_back],
        system_prompt="You are a careful researcher. You answer only what the sources say.",
        hooks={"before_llm": observer.around(*hooks)},
        max_agent_steps=60,
    )
    result = await agent.run_async([ChatMessage.from_user(TASK)])
    return str(result["last_message"].text)


async def main(console: Console, folder: str) -> list[str]:
    """Run the demo and return what went wrong."""
    store = NotingStore(folder)
    with_haybaler, without, heartbeat = Observer(store), Observer(), Heartbeat()
    await with_haybaler.warm_up()

    hook = CompactionHook(ToolResultOffloadCompactor(store), context_window=WINDOW)
    async with heartbeat.beating():
        answer = await research(with_haybaler, hooks=[hook], read_back=[ToolResultToolset(store)])
    console.print(steps_table(with_haybaler))
    console.print(f"[bold]Answer[/bold]  {answer}\n", highlight=False)
    answer_without = await research(without, hooks=[], read_back=[])

    entries = sum(len(written.references) for written in store.written)
    size = kilobytes(sum(written.size for written in store.written))
    console.print(
        f"[bold]Totals[/bold]  peak {with_haybaler.peak:,} tokens with haybaler, {without.peak:,} without; "
        f"{with_haybaler.compactions} compactions; {entries} entries, {size}; "
        f"longest event-loop stall {heartbeat.longest_stall * 1000:.1f} ms",
        highlight=False,
    )
    return failures([answer, answer_without], with_haybaler)


def steps_table(observer: Observer) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    table.add_column("Step", justify="right")
    table.add_column("Tool that answered", min_width=22)
    table.add_column("Tokens\nbefore", justify="right", no_wrap=True)
    table.add_column("Tokens\nafter", justify="right", no_wrap=True)
    table.add_column("Offloaded, and\nto which files", no_wrap=True)
    table.add_column("Written\nin", justify="right", no_wrap=True)
    for number, step in enumerate(observer.steps, start=1):
        compacted = step.after < step.before
        offloaded = Text()
        for written in step.written:
            results = f"{len(written.references)} result{'s' * (len(written.references) != 1)}"
            offloaded.append(f"{results}, {kilobytes(written.size)}", style="green")
            for reference in written.references:
                offloaded.append(f"\n{shortened(reference)}", style="dim")
        table.add_row(
            str(number),
            step.tools,
            f"{step.before:,}",
            Text(f"{step.after:,}", style="bold green" if compacted else ""),
            offloaded,
            " + ".join(f"{written.seconds * 1000:.1f} ms" for written in step.written),
        )
    return table


def kilobytes(size: int) -> str:
    return f"{size / 1000:.0f} kB"


def shortened(reference: str) -> str:
    """Return a pattern for the shell that finds the file: its name begins alike and is mostly random."""
    label, _, random = reference.removeprefix("compacted").rpartition("_")
    return f"*{label}_{random[:6]}*"


def failures(answers: list[str], observer: Observer) -> list[str]:
    found = []
    if not all(f"DEFAULT_PROTOCOL = {pickle.DEFAULT_PROTOCOL}" in answer for answer in answers):
        found.append("An answer is not the one that this Python gives.")
    if not any(step.tools.startswith(("read_tool_result", "search_tool_result")) for step in observer.steps):
        found.append("Nothing was read back.")
    if observer.compactions < LEAST_COMPACTIONS:
        found.append(f"The conversation was compacted {observer.compactions} times, not {LEAST_COMPACTIONS}.")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.strip().partition("\n")[0])
    parser.add_argument("--store", metavar="FOLDER", help="keep the offloaded results there")
    arguments = parser.parse_args()
    out = Console()
    with nullcontext(arguments.store) if arguments.store else tempfile.TemporaryDirectory() as place:
        out.print(f"An async Agent surveys Python's own source in a window of {WINDOW:,} tokens.")
        out.print(f"The model is {MODEL}.", soft_wrap=True)
        out.print(f"Old results go to files in {place}\n", soft_wrap=True)
        problems = asyncio.run(main(out, place))
    if problems:
        sys.exit("\n".join(problems))
