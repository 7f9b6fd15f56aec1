"""Libraries in C that tests put before others: compiled from a text; without a compiler the test is skipped."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def compiled(source: str, library: Path) -> Path:
    """Compile ``source`` into the shared library at that path, and return the path."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here")
    text = library.with_suffix(".c")
    text.write_text(source)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, text, "-ldl"], check=True)
    return library
