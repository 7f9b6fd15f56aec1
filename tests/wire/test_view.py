"""carla-lite's window: what it shows, that a viewer moves the spectator for every client, and who is kept out."""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import carla
import cv2
import numpy as np
import pytest

from tests.browser import browsing, needs_chromium
from tests.conftest import port_pair
from tests.crowd import PATIENCE_S, until
from tests.faults import run

PLACE = re.compile(r"window: its address is in (.+), for you only")
ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)/\?token=(\S+)")


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Viewed:
    """A server with a window, and requests to it."""

    def __init__(self, *more: str) -> None:
        self.port = port_pair()
        command = [sys.executable, "-m", "carla_lite", "--port", str(self.port), "--view", *more]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self.process.stdout is not None
        said = ""
        while not (place := PLACE.search(said)):
            said += (line := self.process.stdout.readline())
            assert line, said
        self.place = Path(place[1])
        assert self.place.stat().st_mode & 0o777 == 0o600
        found = ADDRESS.match(self.place.read_text(encoding="utf-8"))
        assert found
        assert found[2] not in said, "a log may be open to others"
        self.window, self.token = int(found[1]), found[2]
        self.address = f"http://127.0.0.1:{self.window}/?token={self.token}"

    def ask(self, path: str, method: str = "GET", body: bytes = b"", /, **headers: str) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.window, timeout=PATIENCE_S)
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        given = {"host": f"127.0.0.1:{self.window}", **({"content_length": str(len(body))} if body else {}), **headers}
        for name, value in given.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders(body)
        answer = connection.getresponse()
        reply = Reply(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        connection.close()
        return reply

    @property
    def own(self) -> dict[str, str]:
        cookie = self.ask(f"/?token={self.token}").headers["set-cookie"].split(";")[0]
        return {"cookie": cookie, "origin": f"http://127.0.0.1:{self.window}", "sec_fetch_site": "same-origin"}

    def until(self, found: Any) -> dict[str, Any]:
        """Return the state in which something holds."""
        deadline, own = time.monotonic() + PATIENCE_S, self.own
        while True:
            state = json.loads(self.ask("/state", **own).body)
            if found(state):
                return dict(state)
            assert time.monotonic() < deadline, state
            time.sleep(0.1)

    def command(self, **asked: object) -> int:
        return self.ask("/command", "POST", json.dumps(asked).encode(), **self.own).status


@pytest.fixture(scope="module")
def viewed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Viewed]:
    server = Viewed("--recordings", str(tmp_path_factory.mktemp("recordings")))
    yield server
    server.process.terminate()
    server.process.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def connection(viewed: Viewed) -> carla.Client:
    client = carla.Client("127.0.0.1", viewed.port)
    client.set_timeout(30.0)
    return client


@pytest.fixture(scope="module")
def world(connection: carla.Client) -> carla.World:
    return connection.get_world()


def test_a_viewer_sees_who_is_where_from_the_spectators_place(viewed: Viewed, world: carla.World) -> None:
    blueprint = world.get_blueprint_library().find("vehicle.tesla.model3")
    pose = world.get_map().get_spawn_points()[3]
    car = world.spawn_actor(blueprint, pose)
    state = viewed.until(lambda state: [actor[0] for actor in state.get("actors", ())] == [car.id])
    (actor,) = state["actors"]
    assert actor[1] == "vehicle.tesla.model3"
    assert actor[4:6] == pytest.approx([pose.location.x, pose.location.y], abs=0.2)
    assert state["town"]["name"] == "Lite01"
    town = cv2.imdecode(np.frombuffer(viewed.ask("/town", **viewed.own).body, np.uint8), cv2.IMREAD_COLOR)
    assert town is not None
    assert min(town.shape[:2]) > 300
    assert {light[2] for light in state["lights"]} <= {"red", "yellow", "green"}
    car.destroy()
    viewed.until(lambda state: state["actors"] == [])


def test_an_actor_whose_id_comes_back_is_seen_again(
    viewed: Viewed, world: carla.World, connection: carla.Client
) -> None:
    def seen(ids: list[int]) -> None:
        viewed.until(lambda state: [actor[0] for actor in state.get("actors", ())] == ids)

    seen([])
    connection.start_recorder("seen.log")
    car = world.spawn_actor(
        world.get_blueprint_library().find("vehicle.tesla.model3"), world.get_map().get_spawn_points()[3]
    )
    seen([car.id])
    connection.stop_recorder()
    car.destroy()
    seen([])
    connection.replay_file("seen.log", 0.0, 0.0, 0)
    seen([car.id])
    connection.stop_replayer(True)
    world.get_actor(car.id).destroy()
    seen([])


def test_a_prop_is_in_the_picture(viewed: Viewed, world: carla.World) -> None:
    def picture() -> np.ndarray:
        """Return the first picture of a stream that begins now."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", viewed.window, timeout=PATIENCE_S)) as asked:
            asked.request("GET", "/camera", headers={"Cookie": viewed.own["cookie"]})
            answer = asked.getresponse()
            while not (size := re.match(rb"Content-Length: (\d+)", answer.readline())):
                pass
            answer.readline()
            image = cv2.imdecode(np.frombuffer(answer.read(int(size[1])), np.uint8), cv2.IMREAD_COLOR)
        assert image is not None
        return image.astype(int)

    place = world.get_map().get_spawn_points()[3]
    where = place.location + place.get_forward_vector() * 5.0
    place.location.z += 1.0
    world.get_spectator().set_transform(place)
    viewed.until(lambda state: state.get("camera", [0])[0] == pytest.approx(place.location.x, abs=0.1))
    before = picture()
    prop = world.spawn_actor(
        world.get_blueprint_library().find("static.prop.vendingmachine"), carla.Transform(where, place.rotation)
    )
    until(lambda: (abs(picture() - before).max(axis=2) > 30).mean() > 0.02)
    prop.destroy()
    until(lambda: (abs(picture() - before).max(axis=2) > 30).mean() < 0.01)


def test_moving_the_spectator_is_seen_on_both_sides(viewed: Viewed, world: carla.World) -> None:
    spectator = world.get_spectator()
    spectator.set_transform(carla.Transform(carla.Location(10.0, 20.0, 30.0), carla.Rotation(yaw=45.0)))
    viewed.until(lambda state: state.get("camera") == [10.0, 20.0, 45.0])
    assert viewed.command(yaw=0.5) == 204
    until(lambda: abs(spectator.get_transform().rotation.yaw - 73.65) < 0.1)
    assert viewed.command(forward=10.0, up=2.0) == 204
    until(lambda: abs(spectator.get_location().z - 32.0) < 0.1 and spectator.get_location().x > 12.0)


def test_a_followed_actor_stays_in_view_until_a_move_or_drag(viewed: Viewed, world: carla.World) -> None:
    spectator = world.get_spectator()
    blueprint = world.get_blueprint_library().find("vehicle.tesla.model3")
    first, then = world.get_map().get_spawn_points()[5:7]
    car = world.spawn_actor(blueprint, first)
    viewed.until(lambda state: state.get("actors"))
    assert viewed.command(follow=car.id) == 204
    until(lambda: 6.0 < spectator.get_location().distance(car.get_location()) < 9.0)
    car.set_transform(then)
    until(lambda: 6.0 < spectator.get_location().distance(then.location) < 9.0)
    assert viewed.command(up=50.0) == 204
    viewed.until(lambda state: state["following"] is None)
    until(lambda: spectator.get_location().z > 45.0)
    assert viewed.command(follow=car.id) == 204
    until(lambda: spectator.get_location().distance(then.location) < 9.0)
    yaw = spectator.get_transform().rotation.yaw
    assert viewed.command(yaw=0.5) == 204
    viewed.until(lambda state: state["following"] is None)
    until(lambda: abs(math.remainder(spectator.get_transform().rotation.yaw - yaw - math.degrees(0.5), 360)) < 0.1)
    car.destroy()


NO_COMMANDS = [b"[]", b"{", b"7", b'{"yaw": "x"}', b'{"yaw": NaN}', b'{"x": 1e300, "y": 0}', b'{"follow": 1e400}']


@pytest.mark.parametrize("body", [*NO_COMMANDS, b'{"yaw": %s}' % (b"9" * 400)])
def test_what_is_no_command_is_refused_and_moves_nothing(viewed: Viewed, world: carla.World, body: bytes) -> None:
    before = carla.Transform(carla.Location(10.0, 20.0, 30.0), carla.Rotation(yaw=45.0))
    world.get_spectator().set_transform(before)
    viewed.until(lambda state: state.get("camera") == [10.0, 20.0, 45.0])
    assert viewed.ask("/command", "POST", body, **viewed.own).status == 400
    assert world.get_spectator().get_transform() == before


@pytest.mark.parametrize("length", ["", "-1", "5000", "9" * 5000, "x"])
def test_a_length_that_makes_no_sense_is_refused(viewed: Viewed, length: str) -> None:
    assert viewed.ask("/command", "POST", **{**viewed.own, "content_length": length}).status == 400


@pytest.mark.parametrize("path", ["/", "/state", "/camera", "/town", "/window.js", "/command"])
def test_strangers_and_other_sites_are_kept_out(viewed: Viewed, path: str) -> None:
    method, own = ("POST" if path == "/command" else "GET"), viewed.own
    for changed, status in (
        ({"cookie": "other=1"}, 401),
        ({"cookie": own["cookie"][:-1]}, 401),
        ({"cookie": "", "referer": viewed.address}, 401),
        ({"host": "evil.example"}, 403),
        ({"origin": "http://evil.example"}, 403),
    ):
        refused = viewed.ask(path, method, b"{}" if method == "POST" else b"", **{**own, **changed})
        assert refused.status == status, changed
        assert "set-cookie" not in refused.headers


@pytest.mark.parametrize("path", ["/../server.py", "/%2e%2e/web.py", "//etc/passwd", "/window.js/../../web.py"])
def test_no_path_leads_to_another_file(viewed: Viewed, path: str) -> None:
    assert viewed.ask(path, **viewed.own).status == 404


@pytest.mark.parametrize("foreign", ['prefs={"theme":"dark"}', "a b=1", "flag", "name=J\xfcrgen"])
def test_another_programs_cookie_keeps_nobody_out(viewed: Viewed, foreign: str) -> None:
    """A browser sends the cookies of 127.0.0.1 to each of its ports."""
    own = viewed.own["cookie"]
    for cookie in (f"{foreign}; {own}", f"{own}; {foreign}"):
        assert viewed.ask("/state", **{**viewed.own, "cookie": cookie}).status == 200


def test_a_tick_does_not_wait_for_a_viewer_that_does_not_read(viewed: Viewed, world: carla.World) -> None:
    asleep = socket.create_connection(("127.0.0.1", viewed.window))
    cookie = viewed.own["cookie"]
    asleep.sendall(f"GET /camera HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {cookie}\r\n\r\n".encode())
    first = world.wait_for_tick(30.0).frame
    for _ in range(20):
        last = world.wait_for_tick(30.0).frame
    assert last >= first + 20
    asleep.close()


def hill(length_m: int) -> str:
    """Return the map of one road uphill."""
    return (
        f'<OpenDRIVE><header/><road id="1" length="{length_m}" junction="-1"><planView>'
        f'<geometry s="0" x="0" y="0" hdg="0" length="{length_m}"><line/></geometry></planView>'
        '<elevationProfile><elevation s="0" a="40" b="0.05" c="0" d="0"/></elevationProfile><lanes><laneSection s="0">'
        '<center><lane id="0"/></center><right><lane id="-1" type="driving"><width sOffset="0" a="3.5"/></lane></right>'
        "</laneSection></lanes></road></OpenDRIVE>"
    )


def test_a_click_on_a_hill_leads_above_it(tmp_path: Path) -> None:
    (tmp_path / "hill.xodr").write_text(hill(200))
    server = Viewed("--map", str(tmp_path / "hill.xodr"))
    client = carla.Client("127.0.0.1", server.port)
    client.set_timeout(30.0)
    spectator = client.get_world().get_spectator()
    server.until(lambda state: "camera" in state)
    assert server.command(x=100.0, y=1.75) == 204
    until(lambda: abs(spectator.get_location().z - (45.0 + 25.0)) < 0.2)
    server.process.terminate()
    server.process.wait(PATIENCE_S)


def test_another_map_is_shown_once_it_is_loaded() -> None:
    server = Viewed()
    assert json.loads(server.ask("/state", **server.own).body) == {"problem": "", "following": None}
    client = carla.Client("127.0.0.1", server.port)
    client.set_timeout(60.0)
    server.until(lambda state: (state.get("town") or {}).get("name") == "Lite01")
    client.load_world("Lite02")
    server.until(lambda state: (state.get("town") or {}).get("name") == "Lite02")
    server.process.terminate()
    assert server.process.wait(PATIENCE_S) == 0
    assert not server.place.exists()


def test_a_port_that_is_taken_is_one_sentence(viewed: Viewed) -> None:
    ended = run("--view", "--view-port", str(viewed.window))
    assert ended.returncode == 69
    assert ended.stderr.startswith(f"carla-lite: can't listen on 127.0.0.1:{viewed.window} (Address already in use")
    assert ended.stderr.endswith("choose another with --view-port.\n")
    assert ended.stderr.count("\n") == 1


@needs_chromium
def test_dragging_and_clicking_in_a_browser_move_the_spectator(viewed: Viewed, world: carla.World) -> None:
    spectator = world.get_spectator()
    car = world.spawn_actor(
        world.get_blueprint_library().find("vehicle.tesla.model3"), world.get_map().get_spawn_points()[0]
    )
    with browsing() as browser:
        tab = browser.tab()
        tab.see(1400, 760)
        tab.go(viewed.address)
        tab.until("document.querySelector('#actors g') && document.getElementById('camera').naturalWidth")
        yaw = spectator.get_transform().rotation.yaw
        mouse = {"button": "left", "buttons": 1}
        tab.call("Input.dispatchMouseEvent", type="mousePressed", x=300, y=250, clickCount=1, **mouse)
        tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=420, y=250, **mouse)
        tab.call("Input.dispatchMouseEvent", type="mouseReleased", x=420, y=250, clickCount=1, **mouse)
        until(lambda: abs(spectator.get_transform().rotation.yaw - yaw) > 5.0)
        tab.run("document.querySelector('#actors g').dispatchEvent(new MouseEvent('click', {bubbles: true}))")
        until(lambda: spectator.get_location().distance(car.get_location()) < 9.0)
        assert browser.problems == []
    car.destroy()


@needs_chromium
def test_a_browser_shows_each_generated_map() -> None:
    """All generated maps have one name."""
    server = Viewed()
    client = carla.Client("127.0.0.1", server.port)
    client.set_timeout(60.0)
    with browsing() as browser:
        tab = browser.tab()
        tab.go(server.address)
        server.until(lambda state: state.get("town"))  # by then the browser has followed the first page to the second
        shown = tab.until("byId('ground').getAttribute('href')")
        for length_m in (200, 300):
            client.generate_opendrive_world(hill(length_m))
            shown = tab.until(f"(now => now !== {shown!r} && now)(byId('ground').getAttribute('href'))")
        connecting = "draw({problem: ''}); [byId('problem').hidden, byId('figures').textContent]"
        assert tab.run(connecting) == [True, "connecting …"]
        assert browser.problems == []
    server.process.terminate()
    server.process.wait(PATIENCE_S)


@needs_chromium
def test_a_browser_tells_a_lost_server_from_another_one() -> None:
    server = Viewed()
    with browsing() as browser:
        tab = browser.tab()
        tab.see()
        tab.go(server.address)
        tab.until("document.getElementById('figures')?.innerText.startsWith('frame')")
        server.process.terminate()
        server.process.wait(PATIENCE_S)
        tab.until("byId('problem').innerText.includes('answer any more')")
        server = Viewed("--view-port", str(server.window))
        tab.until("byId('problem').innerText.includes('it was started again')")
    server.process.terminate()
    server.process.wait(PATIENCE_S)
