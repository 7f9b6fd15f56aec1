"""Reads YAML that users write: duplicate keys are errors, and numbers such as 1e6 are read as in YAML 1.2.

Knows no schema.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml


class YamlError(ValueError):
    """A text that can't be read. The message is a clause without the file's name and a full stop."""


class _Loader(yaml.SafeLoader):
    """Like ``yaml.safe_load``, but it refuses duplicate keys and recursive values, and 1e6 is a number."""

    deep_construct = True  # so that PyYAML refuses a recursive value

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
        YamlError: it isn't YAML, or has a duplicate key.
    """
    try:
        return yaml.load(text, _Loader)
    except YamlError:
        raise
    except (yaml.YAMLError, ValueError) as error:  # the second for a date that doesn't exist
        raise YamlError(f"isn't YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise YamlError("isn't YAML that can be read: it is nested too deeply") from None


def read(path: Path) -> Any:
    """Return the value of a file.

    Raises:
        YamlError: it can't be read, isn't YAML, or has a duplicate key.
    """
    try:
        return parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise YamlError(f"can't be read ({error.strerror}); give the path of a YAML file") from None
    except UnicodeDecodeError as error:
        raise YamlError(f"isn't YAML: {error}") from None
