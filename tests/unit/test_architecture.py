"""The import rules of docs/architecture.md hold, and the document is about the modules that there are."""

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = ROOT / "src/haybaler"
BACKENDS = {folder.name: folder for folder in ROOT.glob("backends/*/src/*") if (folder / "__init__.py").exists()}
DOCUMENT = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")

LONGEST_MODULE = 300
PURE = {
    "calibration",
    "cli.exits",
    "compactors.notes",
    "compactors.window",
    "conversation",
    "economy",
    "counters.files",
    "counters.image_rules",
    "counters.images",
    "counters.media",
    "counters.learned",
    "counters.likely",
    "counters.rendering",
    "framing",
    "readback.findings",
    "readback.paging",
    "parts",
    "planning",
    "references",
    "readback.searching",
    "stores.group_commit",
    "stores.grouping",
    "stores.inventory",
    "stores.limits",
    "stores.names",
    "stores.place",
    "stores.shares",
    "stores.url",
    "stores.wrappers.forms",
    "stores.wrappers.holds",
    "swaps",
    "usage",
}
IMPURE = {
    "anyio",
    "asyncio",
    "concurrent",
    "deadlines",
    "effects",
    "interop",
    "logging",
    "os",
    "per_loop",
    "socket",
    "threading",
    "workers",
}
BELOW_STORES = {
    "deadlines",
    "effects",
    "errors",
    "gates",
    "interop",
    "per_loop",
    "serialization",
    "sharing",
    "slices",
    "workers",
}


def name_of(file: Path) -> str:
    return ".".join(file.relative_to(CORE).with_suffix("").parts).removesuffix(".__init__")


TREES = {name_of(file): ast.parse(file.read_text(encoding="utf-8")) for file in sorted(CORE.rglob("*.py"))}
OUTSIDE_TESTING = {name: tree for name, tree in TREES.items() if name.split(".")[0] not in {"testing", "__init__"}}


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield what a module imports; names inside haybaler without the package's name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.removeprefix("haybaler.") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.removeprefix("haybaler.")
            # `from haybaler.stores import names` imports a module too.
            whole = (f"{node.module}.{alias.name}".removeprefix("haybaler.") for alias in node.names)
            yield from (name for name in whole if name in TREES)


def uses(tree: ast.AST, *names: str) -> list[str]:
    """Return the imports that are one of the modules, or inside one."""
    return [module for module in imported(tree) if any(f"{module}.".startswith(f"{name}.") for name in names)]


def state_attributes(tree: ast.AST) -> set[str]:
    """Return which attributes of a variable called `state` a module uses."""
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "state"
    }


@pytest.mark.parametrize("name", [name for name in TREES if name.startswith("stores.")])
def test_a_store_imports_nothing_above_stores(name: str) -> None:
    inside = {module for module in imported(TREES[name]) if module in TREES or module.split(".")[0] in TREES}
    assert {module for module in inside if module.split(".")[0] not in BELOW_STORES | {"stores"}} == set()


def test_planning_and_stores_never_import_each_other() -> None:
    assert uses(TREES["planning"], "stores") == []
    assert [name for name in TREES if name.startswith("stores") and uses(TREES[name], "planning")] == []


@pytest.mark.parametrize("name", sorted(PURE))
def test_a_pure_module_imports_nothing_that_acts(name: str) -> None:
    assert uses(TREES[name], *IMPURE) == []


def test_errors_workers_and_what_belongs_to_a_loop_are_the_ground() -> None:
    for name in ("errors", "per_loop", "workers"):
        assert [module for module in imported(TREES[name]) if module in TREES] == []


def test_only_hooks_set_the_state_and_only_hooks_and_tools_read_it() -> None:
    used = {name: state_attributes(tree) for name, tree in OUTSIDE_TESTING.items()}
    assert {name for name, attributes in used.items() if "set" in attributes} == {
        "hooks.compaction",
        "hooks.offload",
        "hooks.write_behind",
    }
    assert {name for name, attributes in used.items() if attributes and not name.startswith("hooks.")} <= {"tools"}
    # `State.get` deep-copies: the whole conversation, with every client and lock in the run's context.
    assert {name for name, attributes in used.items() if "get" in attributes} == set()


def test_nothing_in_the_core_names_a_backend() -> None:
    assert BACKENDS
    texts = {file: file.read_text(encoding="utf-8") for file in CORE.rglob("*.py")}
    assert [file for file, text in texts.items() if any(backend in text for backend in BACKENDS)] == []


@pytest.mark.parametrize("backend", sorted(BACKENDS))
def test_a_backend_imports_only_what_stores_are_made_of(backend: str) -> None:
    for file in BACKENDS[backend].glob("*.py"):
        found = [m for m in imported(ast.parse(file.read_text(encoding="utf-8"))) if m.split(".")[0] in TREES]
        assert {module for module in found if module.split(".")[0] not in BELOW_STORES | {"stores"}} == set()


def test_only_the_kit_imports_pytest_and_nothing_imports_the_kit() -> None:
    assert [n for n, t in OUTSIDE_TESTING.items() if uses(t, "pytest", "hypothesis", "testing")] == []
    assert uses(TREES["testing.contract"], "pytest")


def test_threads_are_started_in_two_modules() -> None:
    threads = ("anyio.to_thread", "concurrent", "multiprocessing")
    found = [name for name, tree in OUTSIDE_TESTING.items() if uses(tree, *threads)]
    assert found == ["deadlines", "sharing", "workers"]
    assert "Executor" not in ast.dump(TREES["sharing"])  # only waits for futures
    used = {n.attr for tree in OUTSIDE_TESTING.values() for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    assert used & {"to_thread", "run_in_executor"} == set()


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {name: {m for m in imported(tree) if m in TREES} - {name} for name, tree in OUTSIDE_TESTING.items()}
    assert len(list(TopologicalSorter(graph).static_order())) >= len(OUTSIDE_TESTING)


MODULES = [*CORE.rglob("*.py"), *ROOT.glob("backends/*/src/**/*.py")]


@pytest.mark.parametrize("file", MODULES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_module_stays_short(file: Path) -> None:
    assert len(file.read_text(encoding="utf-8").splitlines()) <= LONGEST_MODULE


def layers() -> dict[str, int]:
    """Return the layer of each module in the document's table, counted from the ground."""
    layer, found = 0, {}
    table = DOCUMENT.partition("| Layer ")[2].partition("\n\n")[0]
    for name, module in re.findall(r"^\| *(\w*[\w ]*?) *\| `([\w/]+)\.py` +\|", table, re.MULTILINE):
        layer += bool(name)
        found[module.replace("/", ".")] = layer
    return found


def test_a_module_imports_only_from_its_own_layer_and_those_below() -> None:
    layer = layers()
    assert len(set(layer.values())) > 5
    steps = [(name, module) for name in layer for module in imported(TREES[name]) if module in layer]
    assert [(name, module) for name, module in steps if layer[module] > layer[name]] == []


def test_the_document_names_every_module_of_the_core() -> None:
    packages = {
        "cli",
        "compactors",
        "counters",
        "hooks",
        "readback",
        "stores",
        "stores.wrappers",
        "testing",
        "__init__",
    }
    there = TREES.keys() - packages
    assert {name for name in there if not name.startswith("testing.")} - layers().keys() == set()
    named = {name.replace("/", ".") for name in re.findall(r"`([\w/]+)\.py`", DOCUMENT)}
    assert there - named == set()


def test_every_module_that_the_document_names_exists() -> None:
    places = [ROOT, CORE, *BACKENDS.values()]
    named = set(re.findall(r"`([\w/]+\.py)`", DOCUMENT))
    assert [name for name in sorted(named) if not any((place / name).is_file() for place in places)] == []


def test_every_function_that_the_document_names_with_its_module_exists() -> None:
    named = re.findall(r"`((?:[a-z_]+\.)+)([a-z_]+)`", DOCUMENT)
    pairs = [(prefix.rstrip("."), name) for prefix, name in named if prefix.rstrip(".") in TREES and name != "py"]
    assert pairs
    defined = {
        module: {
            n.name for n in TREES[module].body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        }
        for module, _ in pairs
    }
    assert [(module, name) for module, name in pairs if name not in defined[module]] == []


def test_every_folder_that_the_document_names_exists() -> None:
    named = re.findall(r"`((?:src|tests|backends|examples|docs)/[\w/]*)`", DOCUMENT)
    assert [name for name in named if not (ROOT / name).exists()] == []
