"""Print the requirements of a project and some of its extras: ``requirements.py pyproject.toml agent``.

For the Dockerfiles, whose layer of dependencies then comes before the code. On Python 3.10 it needs tomli. carla-lite,
which is built from this repository, is replaced by its own requirements.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LITE = "carla-lite"


def main() -> None:
    """Print one requirement a line: those of the project, then those of the named extras."""
    file, *extras = sys.argv[1:]
    print(*needed(Path(file), extras), sep="\n")


def needed(file: Path, extras: Sequence[str]) -> list[str]:
    """Return the requirements of a project file."""
    project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"], *(each for extra in extras for each in project["optional-dependencies"][extra])]
    others = [each for each in asked if each != LITE]
    return others if LITE not in asked else [*others, *needed(file.parent / "carla" / "lite" / file.name, ())]


if __name__ == "__main__":
    main()
