"""Which commands run a container, and what their words say of it."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carla_launcher.act.container_words import ContainerWords, container_of


def words_of(command: str) -> ContainerWords:
    found = container_of(tuple(shlex.split(command)))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("command", "options", "rest"),
    [
        ("docker run image", "", "image"),
        ("/usr/bin/docker run --rm image train -d cuda", "--rm", "image train -d cuda"),
        ("docker -H ssh://gpu --debug run -it --gpus all image", "-it --gpus all", "image"),
        ("docker --context=a container run -e A=1 -v/a:/b image sh", "-e A=1 -v/a:/b", "image sh"),
        ("podman run --env-host -iv /a:/b -m2g image", "--env-host -iv /a:/b -m2g", "image"),
        ("docker run --init --shm-size=8g -p80:80 -- image", "--init --shm-size=8g -p80:80", "-- image"),
        ("docker run --name", "--name", ""),
    ],
)
def test_the_words_of_a_container_are_told_apart(command: str, options: str, rest: str) -> None:
    found = words_of(command)
    assert (shlex.join(found.options), shlex.join(found.rest)) == (options, rest)


@pytest.mark.parametrize(
    "command", ["python train.py", "docker", "docker exec a run", "docker compose run a", "dockerd run", "docker -H"]
)
def test_any_other_command_is_no_container(command: str) -> None:
    assert container_of(tuple(command.split())) is None


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("docker run -d image", "run -d` goes into the background"),
        ("docker run -id image", "run -d` goes into the background"),
        ("podman run --detach=true image", "`podman run -d`"),
        ("docker run -it image", "run -t` needs a terminal"),
        ("docker run --cidfile a image", "is set by the launcher"),
        ("docker run --name a image", "run --name a` can start only once: add --rm"),
        ("docker run --detach=false --rm --name a -i image train -dt", ""),
    ],
)
def test_what_can_not_be_supervised_is_refused(command: str, said: str) -> None:
    refusal = words_of(command).refusal
    assert said in refusal
    assert bool(refusal) == bool(said)


@pytest.mark.parametrize(
    ("options", "mib"),
    [
        ("-m 2g", 2048),
        ("-m512m", 512),
        ("--memory=1.5GB", 1536),
        ("--memory 65536k", 64),
        ("", None),
        ("-m lots", None),
    ],
)
def test_its_memory_limit_is_known(options: str, mib: float | None) -> None:
    assert words_of(f"docker run {options} image -m 1g").memory_mib == mib


@pytest.mark.parametrize(
    ("options", "sources"),
    [
        ("-v /a:/b", ["/a"]),
        ("-iv ./a:/b:z --volume=/c:/d:rw", ["./a", "/c"]),
        ("-v /a:/b:ro -v /c:/d:z,ro -v named:/e -v /anonymous:ro", []),
        ("--mount type=bind,source=/a,target=/b --mount=type=bind,src=c,dst=/d,readonly=false", ["/a", "c"]),
        ("--mount type=bind,src=/a,dst=/b,readonly --mount type=bind,src=/a,dst=/b,ro=true --mount src=v,dst=/c", []),
        ("--tmpfs /a -e v=/b:/c", []),
    ],
)
def test_what_it_can_write_of_this_machine_is_known(options: str, sources: list[str]) -> None:
    assert list(words_of(f"docker run {options} image -v /no:/no").writable) == sources


def test_a_start_names_its_id_file_and_variables_before_its_own_options() -> None:
    started = words_of("docker run -e A=2 image run").start(Path("/r/agent.container"), ("A", "CARLA_PORT"))
    expected = "docker run --cidfile /r/agent.container --env A --env CARLA_PORT -e A=2 image run"
    assert shlex.join(started) == expected


@pytest.mark.parametrize(
    ("command", "ending"),
    [
        ("docker -H a run --rm image", "docker -H a rm --force"),
        ("podman container run image --rm", "podman kill"),
    ],
)
def test_its_end_is_asked_of_the_same_engine(command: str, ending: str) -> None:
    assert shlex.join(words_of(command).ending) == ending


WORD = st.sampled_from(
    (
        *("docker", "podman", "run", "container", "image", "", "-", "--", "---", "-d", "-it", "-m2g", "-m", "--memory"),
        *(
            "--memory=1e9",
            "--memory=9" + "9" * 400 + "g",
            "--rm",
            "--rm=false",
            "--name",
            "--name=",
            "-=",
            "\x00",
            "-é",
        ),
    )
) | st.text(max_size=5)


@given(st.lists(WORD, max_size=8))
def test_any_words_are_read(words: list[str]) -> None:
    found = container_of(("docker", *words))
    if found is None:
        return
    assert (*found.call, *found.options, *found.rest) == ("docker", *words)
    assert isinstance(found.refusal, str)
    assert found.memory_mib is None or found.memory_mib >= 0
    assert all(isinstance(each, str) for each in found.writable)
    assert found.ending[0] == "docker"
    assert "run" not in found.ending or "run" in words[: len(found.call) - 2]
    assert set(found.options) <= set(found.start(Path("id"), ("A",)))
