"""Print what pip must install for some of the optional dependencies: ``requirements.py pyproject.toml agent``.

For the Dockerfiles, whose layer of dependencies so stands before the code. On Python 3.10 it needs tomli.
"""

from __future__ import annotations

import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def main() -> None:
    """Print one requirement a line: those of the project, then those of the named extras."""
    file, *extras = sys.argv[1:]
    project = tomllib.loads(Path(file).read_text(encoding="utf-8"))["project"]
    named = [requirement for extra in extras for requirement in project["optional-dependencies"][extra]]
    print(*project["dependencies"], *named, sep="\n")


if __name__ == "__main__":
    main()
