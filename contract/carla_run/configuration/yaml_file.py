"""Reads YAML that users write: duplicate keys are errors, and numbers such as 1e6 are read as in YAML 1.2.

Knows no schema.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

MOST_BYTES, MOST_VALUES = 4 << 20, 100_000
"""Largest file, and most values in it, each counted as often as an alias repeats it."""
_IN_NO_PATH = re.compile("[\0\ud800-\udfff]")
"""NUL, and halves of characters, which only an escape such as ``\\0`` can write."""


class YamlError(ValueError):
    """A text that can't be read. The message is a clause without the file's name and a full stop."""


class _Loader(yaml.SafeLoader):
    """Like ``yaml.safe_load``, but it refuses duplicate keys and recursive values, and 1e6 is a number."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.deep_construct = True  # so that PyYAML refuses a recursive value

    def compose_scalar_node(self, anchor: Any) -> Any:
        node = super().compose_scalar_node(anchor)
        if odd := _IN_NO_PATH.search(node.value):
            where = f"in line {node.start_mark.line + 1}"
            raise YamlError(
                f"has the character {odd[0]!r} {where}, which no word, variable or path can have: remove it"
            )
        return node

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        lines: dict[str, int] = {}
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            line = key.start_mark.line + 1
            if key.value in lines:
                raise YamlError(f"`{key.value}` stands twice, in lines {lines[key.value]} and {line}: keep one of them")
            lines[key.value] = line
        return node


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)[eE][-+]?[0-9]+$"),
    list("-+.0123456789"),
)


def parse(text: str) -> Any:
    """Return the value of a text.

    Raises:
        YamlError: it isn't YAML, or has a duplicate key.
    """
    try:
        return _constructed(text)
    except YamlError:
        raise
    except (yaml.YAMLError, ValueError) as error:  # the second for a date that doesn't exist
        raise YamlError(f"isn't YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise YamlError("isn't YAML that can be read: it is nested too deeply") from None


def _constructed(text: str) -> Any:
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is not None and _values(node, {}) > MOST_VALUES:
            raise YamlError(f"has more than {MOST_VALUES} values, aliases counted: write fewer")
        return None if node is None else loader.construct_document(node)
    finally:
        loader.dispose()


def _values(node: yaml.Node, known: dict[int, int]) -> int:
    """Return the number of values of a node, with those that aliases repeat; ``known`` has those of other nodes."""
    if id(node) in known or isinstance(node, yaml.ScalarNode):
        return known.get(id(node), 1)
    known[id(node)] = 0  # of a node that contains itself, which PyYAML refuses later
    inside = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
    known[id(node)] = 1 + sum(_values(each, known) for each in inside)
    return known[id(node)]


def read(path: Path) -> Any:
    """Return the value of a file.

    Raises:
        YamlError: it can't be read, isn't YAML, or has a duplicate key.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise YamlError(f"has more than {MOST_BYTES >> 20} MiB, which no configuration has")
        return parse(content.decode())
    except OSError as error:
        raise YamlError(f"can't be read ({error.strerror}); give the path of a YAML file") from None
    except UnicodeDecodeError as error:
        raise YamlError(f"isn't YAML: {error}") from None
