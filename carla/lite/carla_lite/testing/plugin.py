"""The pytest plugin: fixtures ``carla_server``, ``carla_client``, ``carla_world``, ``carla_traffic_manager``.

Each worker of pytest-xdist has its own servers, which choose their own ports.
"""

from __future__ import annotations

import socket
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from carla_lite.testing.servers import LiteServer, free_port, server
from carla_lite.testing.worlds import synchronous

_TIMEOUT_S, _ANSWERS_S = 60.0, 5.0
_SHOWN = 4000
_MARKS = (
    "carla_town(name): the map that the test's world is, such as Town02 of --carla-map-dir, or a town of carla-lite.",
    "carla_server(map, **arguments): a server for this test only, with arguments of carla_lite.testing.server: "
    "faults, seed, tick_ms, options, …",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options for the session's server."""
    group = parser.getgroup("carla-lite")
    group.addoption("--carla-map", default="Lite01", help="Map of the session's carla-lite.")
    group.addoption("--carla-map-dir", default=None, help="Folder of .xodr files that it offers by name.")
    group.addoption(
        "--carla-server",
        default=None,
        metavar="HOST:PORT",
        help="Run the tests in a CARLA or carla-lite that already runs there; tests that start a server are skipped.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks; refuse several workers in one server.

    Raises:
        pytest.UsageError: each of them would load maps and tick the world of the others' tests.
    """
    if config.getoption("--carla-server") and len(config.getoption("tx", [])) > 1:
        raise pytest.UsageError("--carla-server names one server, for one worker: leave out pytest-xdist's -n.")
    for mark in _MARKS:
        config.addinivalue_line("markers", mark)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the server's output to the report of a failed test."""
    report = yield
    if report.failed and isinstance(of_test := getattr(item, "funcargs", {}).get("carla_server"), LiteServer):
        report.sections.append(("carla-lite", of_test.output[-_SHOWN:]))
    return report


class Running:
    """A server that was started elsewhere."""

    def __init__(self, address: str) -> None:
        self.host, _, port = address.rpartition(":")
        try:
            self.port = int(port)
            socket.create_connection((self.host, self.port), _ANSWERS_S).close()
        except (OSError, ValueError, OverflowError) as error:
            pytest.fail(f"--carla-server {address}: no server answers there ({error}); expected HOST:PORT.", False)


@pytest.fixture(scope="session")
def _session_server(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The server of all tests without special arguments, started with the first one."""
    if address := request.config.getoption("--carla-server"):
        yield Running(address)
        return
    options = request.config.option
    with server(options.carla_map, map_dir=options.carla_map_dir) as running:
        yield running


@pytest.fixture
def carla_server(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A listening carla-lite: the session's, or with the mark ``carla_server`` one for this test only.

    If a test has killed the session's server, it is restarted for the next test.
    """
    mark = request.node.get_closest_marker("carla_server")
    if mark is not None:
        if request.config.getoption("--carla-server"):
            pytest.skip("this test needs a carla-lite that the plugin starts; --carla-server names another server")
        options = request.config.option
        default = {} if mark.args else {"map": options.carla_map}
        with server(*mark.args, **{**default, "map_dir": options.carla_map_dir, **mark.kwargs}) as own:
            yield own
        return
    shared = request.getfixturevalue("_session_server")
    if isinstance(shared, LiteServer) and not shared.alive:
        shared.restart()
    yield shared


@pytest.fixture
def carla_client(carla_server: Any) -> Any:
    """A ``carla.Client`` of the test's server."""
    carla = pytest.importorskip("carla", reason="the client isn't installed: pip install carla==0.9.16")
    client = carla.Client(carla_server.host, carla_server.port)
    client.set_timeout(_TIMEOUT_S)
    return client


@pytest.fixture
def carla_world(request: pytest.FixtureRequest, carla_client: Any) -> Iterator[Any]:
    """A new episode of the test's town in synchronous mode, 0.05 s a tick; no actor is left in it afterwards."""
    with synchronous(carla_client, town=_town(request)) as world:
        yield world


@pytest.fixture
def carla_traffic_manager(carla_client: Any, carla_world: Any) -> Iterator[Any]:  # noqa: ARG001 (in its mode)
    """A Traffic Manager in step with ``carla_world``, on a free port; it is shut down after the test."""
    manager = carla_client.get_trafficmanager(free_port())
    manager.set_synchronous_mode(True)
    manager.set_random_device_seed(0)
    yield manager
    manager.shut_down()


def _town(request: pytest.FixtureRequest) -> str:
    """Return the map that the test's mark names, else the session's."""
    mark = request.node.get_closest_marker("carla_town")
    if mark is None:
        return _session_map(request)
    if mark.kwargs or [type(each) for each in mark.args] != [str]:
        pytest.fail(f'{mark.name} has {mark.args} {mark.kwargs}: expected one map, as carla_town("Town02").', False)
    return str(mark.args[0])


def _session_map(request: pytest.FixtureRequest) -> str:
    """Return the session's map; the empty name, which means the present map, for a server with another map."""
    of_its_own = request.config.getoption("--carla-server") or request.node.get_closest_marker("carla_server")
    if of_its_own:
        return ""
    map = str(request.config.option.carla_map)
    return Path(map).stem if Path(map).is_file() else map  # clients load it by its name
