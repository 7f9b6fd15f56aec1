"""The meaning of each of Ray's errors for the collector whose answer was awaited."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from carla_run.exits import Exit
from carla_td3.cluster.waiting import GaveUpError, LostError
from carla_td3.exits import AgentError

ray = pytest.importorskip("ray", reason="Ray isn't installed: pip install '.[ray]'")
from carla_td3.cluster import actors  # noqa: E402  needs Ray

errors = ray.exceptions


def below(base: type[Exception]) -> Iterator[type[Exception]]:
    """Yield the class and all that are made from it."""
    yield base
    for each in base.__subclasses__():
        yield from below(each)


OTHERS = (errors.ActorUnavailableError, errors.AuthenticationError, errors.RayTaskError)
LOST = sorted(
    {each for each in below(errors.RayError) if not issubclass(each, OTHERS) and each.__module__ == "ray.exceptions"},
    key=lambda each: each.__name__,
)


def said(base: type[Exception]) -> Exception:
    """Return an error of a class, whatever it is made of."""
    made = type(base.__name__, (base,), {"__init__": lambda _: None, "__str__": lambda _: "first\nwhy\n"})
    return made()  # type: ignore[no-any-return]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> actors.Actors:
    """Return the cluster of a driver whose Ray answers at once, with what was asked or by raising it."""

    def get(asked: Any) -> Any:
        if isinstance(asked, Exception):
            raise asked
        return asked

    monkeypatch.setattr(ray, "wait", lambda refs, **_: (refs, []))
    monkeypatch.setattr(ray, "get", get)
    made = actors.Actors.__new__(actors.Actors)
    made.address = "127.0.0.1:6379"
    return made


def asked(cluster: actors.Actors, answers: list[Any], still_wanted: Callable[[], bool] = lambda: True) -> Any:
    following = iter(answers)
    return cluster.answer_of(lambda: next(following), still_wanted)


@pytest.mark.parametrize("kind", LOST, ids=lambda kind: kind.__name__)
def test_whatever_ray_loses_is_a_lost_collector_with_its_cause(cluster: actors.Actors, kind: type[Exception]) -> None:
    with pytest.raises(LostError, match=f"^{kind.__name__}: first … why$"):
        asked(cluster, [said(kind)])


def test_the_errors_of_memory_nodes_workers_and_objects_are_among_them() -> None:
    names = {kind.__name__ for kind in LOST}
    assert names >= {"OutOfMemoryError", "NodeDiedError", "WorkerCrashedError", "OwnerDiedError", "ActorDiedError"}
    assert names >= {"ObjectStoreFullError", "ObjectLostError", "OutOfDiskError", "LocalRayletDiedError"}
    assert names >= {"RaySystemError", "RpcError", "RuntimeEnvSetupError", "ActorUnschedulableError"}


def test_an_actor_that_answers_again_is_asked_again(cluster: actors.Actors) -> None:
    assert asked(cluster, [said(errors.ActorUnavailableError), "here"]) == "here"
    with pytest.raises(GaveUpError):
        asked(cluster, [said(errors.ActorUnavailableError)], lambda: False)


def test_a_token_that_is_taken_no_more_ends_the_run(cluster: actors.Actors) -> None:
    with pytest.raises(AgentError, match="refuses the token") as refused:
        asked(cluster, [said(errors.AuthenticationError)])
    assert refused.value.code is Exit.BAD_CONFIG


@pytest.mark.parametrize("kind", [errors.OwnerDiedError, errors.ObjectStoreFullError, errors.OutOfMemoryError])
def test_a_task_that_ray_could_not_run_is_lost_and_one_with_a_mistake_of_ours_is_not(
    cluster: actors.Actors, kind: type[Exception]
) -> None:
    def task(cause: Exception) -> Exception:
        failed = said(errors.RayTaskError)
        failed.cause = cause  # type: ignore[attr-defined]
        return failed

    with pytest.raises(LostError, match="first … why"):
        asked(cluster, [task(said(kind))])
    with pytest.raises(RuntimeError, match=r"^on its node: first … why$"):
        asked(cluster, [task(KeyError("a mistake"))])


def test_weights_that_the_object_store_has_no_room_for_are_a_loss_too(
    cluster: actors.Actors, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put(_: Any) -> None:
        raise said(errors.ObjectStoreFullError)

    class File:
        version = 1

        def read(self) -> Any:
            return type("Found", (), {"version": 1, "flat": []})

    monkeypatch.setattr(ray, "put", put)
    cluster._weights, cluster._lock = None, threading.Lock()
    with pytest.raises(LostError, match=r"^ObjectStoreFullError: "):
        cluster.newest(File())  # type: ignore[arg-type]
