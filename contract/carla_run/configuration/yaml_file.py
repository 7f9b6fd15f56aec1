"""YAML that a person writes: strictly one value a key, with numbers as YAML 1.2 and everybody else writes them.

Owns the reading and its sentences; knows no schema.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml


class YamlError(ValueError):
    """A text that can't be read; the message is a clause without the file's name and a full stop."""


class _Loader(yaml.SafeLoader):
    """As ``yaml.safe_load``, but for keys that stand twice, what holds itself, and 1e6, which is text in YAML 1.1."""

    deep_construct = True  # at once, so that PyYAML meets a value that holds itself, and refuses it

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.deep_construct = True

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
        YamlError: it isn't YAML, or a key stands twice.
    """
    try:
        return yaml.load(text, _Loader)
    except YamlError:
        raise
    except (yaml.YAMLError, ValueError) as error:  # the second: a date that there isn't
        raise YamlError(f"isn't YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise YamlError("isn't YAML that can be read: it is nested too deeply") from None


def read(path: Path) -> Any:
    """Return the value of a file.

    Raises:
        YamlError: it can't be read, isn't YAML, or a key stands twice.
    """
    try:
        return parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise YamlError(f"can't be read ({error.strerror}); give the path of a YAML file") from None
    except UnicodeDecodeError as error:
        raise YamlError(f"isn't YAML: {error}") from None
