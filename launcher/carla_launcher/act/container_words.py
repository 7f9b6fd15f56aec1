"""``docker run`` or ``podman run`` as a command: what its words say of the container. Reads nothing but words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from carla_run.memory.processes import MIB

Words = tuple[str, ...]

ENGINES = ("docker", "podman")
_GLOBAL_FLAGS = ("-D", "--debug", "--tls", "--tlsverify", "-r", "--remote", "--noout", "--syslog")
"""Options before ``run`` that take no value."""
_FLAGS = (
    *("detach", "disable-content-trust", "env-host", "help", "http-proxy", "init", "interactive", "no-healthcheck"),
    *("no-hostname", "no-hosts", "oom-kill-disable", "passwd", "privileged", "publish-all", "quiet", "read-only"),
    *("read-only-tmpfs", "replace", "rm", "rmi", "rootfs", "sig-proxy", "tls-verify", "tty", "unsetenv-all"),
    "use-api-socket",
)
"""Options of ``run`` that take no value, in both programs; all others take one."""
_SHORT = {"d": "detach", "i": "interactive", "P": "publish-all", "q": "quiet", "t": "tty", "m": "memory", "v": "volume"}
_UNITS = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?) ?([bkmg]?)b?", re.IGNORECASE)


@dataclass(frozen=True)
class ContainerWords:
    """The words of a command that runs a container in the foreground.

    Attributes:
        call: the program, its own options, and ``run``.
        options: of ``run``.
        rest: the image and its command.
    """

    call: Words
    options: Words
    rest: Words

    @property
    def engine(self) -> str:
        """Return docker or podman."""
        return Path(self.call[0]).name

    @property
    def refusal(self) -> str:
        """Return why the launcher can't supervise it, with advice, as a sentence; empty if it can."""
        given, call = dict(_options(self.options)), f"`{self.engine} run"
        if _is_on(given, "detach"):
            return f"{call} -d` goes into the background: leave -d out."
        if _is_on(given, "tty"):
            return f"{call} -t` needs a terminal, and a command of the launcher has none: leave -t out."
        if "cidfile" in given:
            return f"{call} --cidfile` is set by the launcher, to find the container: leave it out."
        if "name" in given and not _is_on(given, "rm"):
            return f"{call} --name {given['name']}` can start only once: add --rm, or leave --name out."
        return ""

    @property
    def memory_mib(self) -> float | None:
        """Return the container's memory limit, MiB; None if the words give none."""
        found = _AMOUNT.fullmatch(dict(_options(self.options)).get("memory", ""))
        return None if found is None else float(found[1]) * _UNITS[found[2].lower()] / MIB

    @property
    def writable(self) -> Iterator[str]:
        """Yield the files and folders of this machine that the container mounts writable, as the words name them."""
        for name, value in _options(self.options):
            if name == "volume" and value.startswith(("/", ".")):  # others are volumes of the engine
                source, _, rest = value.partition(":")
                if "ro" not in rest.rpartition(":")[2].split(","):
                    yield source
            elif name == "mount":
                fields = {key: text for key, _, text in (each.partition("=") for each in value.split(","))}
                if fields.get("type") == "bind" and not (_is_on(fields, "ro") or _is_on(fields, "readonly")):
                    yield fields.get("source") or fields.get("src", "")

    @property
    def ending(self) -> Words:
        """Return the command that ends the container, without its id; it also removes one with ``--rm``."""
        removes = _is_on(dict(_options(self.options)), "rm")
        return (*self._of_engine, *(("rm", "--force") if removes else ("kill",)))

    @property
    def asks_for_image(self) -> Words:
        """Return the command that ends with 0 if the image is on this machine."""
        return (*self._of_engine, "image", "inspect", "--format", "{{.Id}}", *self.rest[:1])

    @property
    def pulls(self) -> bool:
        """Return whether a missing image is pulled."""
        return dict(_options(self.options)).get("pull") != "never"

    @property
    def _of_engine(self) -> Words:
        """Return the program and its own options."""
        of_engine = self.call[:-1]
        return of_engine[:-1] if of_engine[-1] == "container" else of_engine

    def start(self, id_file: Path, variables: Iterable[str]) -> Words:
        """Return the words of a start.

        Args:
            id_file: to which the program writes the container's id; it must not exist.
            variables: names of environment variables that the container gets, unless the options set them.
        """
        passed = (word for name in variables for word in ("--env", name))
        return (*self.call, "--cidfile", str(id_file), *passed, *self.options, *self.rest)


def container_of(words: Words) -> ContainerWords | None:
    """Return the parts of a command that runs a container; None for any other command."""
    if not words or Path(words[0]).name not in ENGINES:
        return None
    place = 1
    while place < len(words) and words[place].startswith("-"):
        place += 1 if "=" in words[place] or words[place] in _GLOBAL_FLAGS else 2
    place += words[place : place + 1] == ("container",)
    if words[place : place + 1] != ("run",):
        return None
    call, rest = words[: place + 1], words[place + 1 :]
    length = _length(rest)
    return ContainerWords(call, rest[:length], rest[length:])


def _length(words: Words) -> int:
    """Return how many words the options at the beginning take."""
    place = 0
    while place < len(words) and words[place].startswith("-") and words[place] != "--":
        place += 2 if _wants_value(words[place]) else 1
    return min(place, len(words))


def _wants_value(word: str) -> bool:
    """Return whether an option's value is the next word."""
    if word.startswith("--"):
        return "=" not in word and word[2:] not in _FLAGS
    flags = re.match("-([diPqt]*)", word)
    return flags is not None and len(word) - flags.end() == 1


def _options(options: Words) -> Iterator[tuple[str, str]]:
    """Yield long names and values of options; a flag's value is empty, or as given."""
    place = 0
    while place < len(options):
        word = options[place]
        apart = _wants_value(word)
        value = options[place + 1] if apart and place + 1 < len(options) else ""
        if word.startswith("--"):
            name, _, joined = word[2:].partition("=")
            yield name, value or joined
        else:
            yield from _short(word[1:], value)
        place += 2 if apart else 1


def _short(letters: str, value: str) -> Iterator[tuple[str, str]]:
    for place, letter in enumerate(letters):
        name = _SHORT.get(letter, letter)
        if name not in _FLAGS:
            yield name, value or letters[place + 1 :].removeprefix("=")
            return
        yield name, ""


def _is_on(given: dict[str, str], flag: str) -> bool:
    return flag in given and given[flag].lower() not in ("false", "0", "f")
