"""The rules that keep the packages and their rooms apart."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from carla_launcher.config import LauncherConfig
from carla_run.configuration.section import keys_of
from carla_td3.config import AgentConfig

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = {
    "carla_td3": "agent/carla_td3",
    "carla_run": "contract/carla_run",
    "carla_launcher": "launcher/carla_launcher",
    "carla_lite": "carla/lite/carla_lite",
}
FORBIDDEN = {
    "carla_td3": {"carla_launcher", "carla_lite"},
    "carla_launcher": {"carla_td3", "carla_lite", "torch", "carla"},
    "carla_lite": {"carla_td3", "carla_run", "carla_launcher", "carla", "torch"},
}
EXCEPT = {"carla_lite": [("carla_lite.testing.worlds", "carla")]}
"""What runs in a client's process."""

NVML = "carla_run.memory.nvml"
WITHOUT_CIRCLES_OF_ROOMS = ("carla_td3", "carla_launcher", "carla_lite")
CONFIGURATION = "carla_run.configuration"
"""With NVML's module what needs packages in the contract: the others run under ``python -S``, too."""

LOOKS_ONLY = {"observe": {"observe"}, "plugins.reserve": {"plugins.reserve", "observe", "hooks"}}
"""The launcher's rooms that know nothing of its others."""


def modules(package: str) -> dict[str, Path]:
    root = REPOSITORY / PACKAGES[package]
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = (package, *path.relative_to(root).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path) -> Iterator[str]:
    """Yield the absolute names that a file imports, ``from a import b`` as ``a.b``."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; absolute names show which room is entered"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def project_file() -> dict[str, Any]:
    read: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    return read


@pytest.mark.parametrize("package", FORBIDDEN)
def test_a_room_imports_only_what_it_may(package: str) -> None:
    entered = {(module, name.split(".")[0]) for module, path in modules(package).items() for name in imports(path)}
    assert [each for each in sorted(entered) if each[1] in FORBIDDEN[package]] == EXCEPT.get(package, [])


def test_the_contract_is_below_all_and_its_core_needs_the_standard_library_only() -> None:
    packages = {CONFIGURATION: {"pydantic", "pydantic_core", "yaml"}, NVML: {"pynvml"}}
    for module, path in modules("carla_run").items():
        entered = set(imports(path))
        own = {each: needed for each, needed in packages.items() if module.startswith(each)}
        beside = {"carla_run"}.union(*own.values())
        assert {name.split(".")[0] for name in entered} <= sys.stdlib_module_names | beside, module
        assert not [name for name in entered if name.startswith(tuple(packages.keys() - own))], module


def imported(package: str) -> nx.DiGraph[str]:
    """Return the package's modules, with an edge to each module of the same package that one imports."""
    known = modules(package)
    graph: nx.DiGraph[str] = nx.DiGraph()
    for module, path in known.items():
        for name in imports(path):
            target = name if name in known else name.rpartition(".")[0]
            if target in known and target != module:
                graph.add_edge(module, target)
    return graph


def room(module: str) -> str:
    """Return a module's sub-package, or the plugin; a file on the package's top level is a room, too."""
    parts = module.split(".")
    return ".".join(parts[: 3 if parts[1:2] == ["plugins"] else 2])


@pytest.mark.parametrize("package", PACKAGES)
def test_no_imports_go_in_a_circle(package: str) -> None:
    assert not list(nx.simple_cycles(imported(package)))


@pytest.mark.parametrize("package", WITHOUT_CIRCLES_OF_ROOMS)
def test_no_rooms_go_in_a_circle(package: str) -> None:
    graph: nx.DiGraph[str] = nx.DiGraph()
    for module, target in imported(package).edges:
        if room(module) != room(target):
            graph.add_edge(room(module), room(target))
    assert not list(nx.simple_cycles(graph))


@pytest.mark.parametrize("name", LOOKS_ONLY)
def test_what_only_looks_enters_no_room_that_decides_acts_or_shows(name: str) -> None:
    entered = {
        room(there) for here, there in imported("carla_launcher").edges if room(here) == f"carla_launcher.{name}"
    }
    assert entered <= {f"carla_launcher.{each}" for each in LOOKS_ONLY[name]}


def test_the_launchers_core_imports_no_plugin() -> None:
    core = (path for name, path in modules("carla_launcher").items() if "plugins" not in name.split("."))
    assert not [(path, name) for path in core for name in imports(path) if "carla_launcher.plugins" in name]


def test_the_launcher_knows_no_key_of_the_agent_by_heart() -> None:
    """The agent's program file says them; names that both configurations have are the launcher's own."""
    own = keys_of(LauncherConfig)
    agents = [re.escape(key) for key in keys_of(AgentConfig) if "." in key and key not in own]
    known = re.compile(rf"\b({'|'.join(agents)})\b")
    found = [
        (module, node.value)
        for module, path in modules("carla_launcher").items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and known.search(node.value)
    ]
    assert not found


def test_each_plugin_is_found_by_an_entry_point() -> None:
    named = project_file()["project"]["entry-points"]["carla_launcher.plugins"].values()
    plugins = {name for name in modules("carla_launcher") if name.startswith("carla_launcher.plugins.")}
    assert set(named) <= plugins
    assert {room(name) for name in plugins} == {room(name) for name in named}


def test_pinned_versions_agree() -> None:
    pins = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8")
    agent = project_file()["project"]["optional-dependencies"]["agent"]
    for exact in (requirement for requirement in agent if "==" in requirement):
        assert exact in pins.splitlines()


def test_no_test_judges_a_duration() -> None:
    """A busy machine takes longer: an ``assert`` may end a wait by the clock, but not subtract two of its times."""
    asserts = [
        (str(path), node)
        for path in (REPOSITORY / "tests").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Assert)
    ]
    clocks = re.compile(
        r"\btime\.(?:monotonic|perf_counter|time)\(\) -|- time\.(?:monotonic|perf_counter|time)\(\)|took_s <"
    )
    assert [path for path, node in asserts if clocks.search(ast.unparse(node.test))] == []


def test_no_health_check_of_hypothesis_is_switched_off_and_no_draw_is_thrown_away() -> None:
    sources = {
        path: path.read_text(encoding="utf-8")
        for path in (REPOSITORY / "tests").rglob("*.py")
        if path != Path(__file__)
    }
    odd = re.compile(r"suppress_health_check|\bassume\(|^from hypothesis import .*\bassume\b", re.M)
    assert [str(path) for path, source in sources.items() if odd.search(source)] == []
