"""Hooks of the documentation's site (mkdocs.yml): the README is its first page, and results are files beside it.

In the repository a page links to ``../benchmarks/results/…`` and the README to ``docs/…``; on the site these are
``results/…`` and ``…``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

REPOSITORY = Path(__file__).resolve().parent.parent
RESULTS = "benchmarks/results"


def on_files(files: Files, *, config: Any) -> Files:
    """Add the README as the first page, and the results that pages link to."""
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    files.append(File.generated(config, "index.md", content=of_readme(readme)))
    pages = readme + "".join(path.read_text(encoding="utf-8") for path in (REPOSITORY / "docs").rglob("*.md"))
    for name in sorted(set(re.findall(rf"{RESULTS}/([\w./-]+\.\w+)", pages))):
        if (REPOSITORY / RESULTS / name).is_file() and not name.endswith(".md"):
            files.append(File.generated(config, f"results/{name}", abs_src_path=str(REPOSITORY / RESULTS / name)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Turn links that leave the folder of the documents into links of the site, or into text."""
    inside = re.sub(rf"\]\((?:\.\./)?{RESULTS}/([\w./-]+(?<!\.md))\)", _on_site, markdown)
    return re.sub(r"\[([^\]]+)\]\(\.\./[^)]+\)", r"\1", inside)


def _on_site(link: re.Match[str]) -> str:
    whole: str = link.group(0)
    return f"](results/{link.group(1)})" if (REPOSITORY / RESULTS / link.group(1)).is_file() else whole


def of_readme(text: str) -> str:
    """Return the README with its links as they are in the folder of the documents."""
    linked = re.sub(r"\]\(docs/", "](", text)
    return re.sub(r"\[([^\]]+)\]\((CONTRIBUTING|CHANGELOG|LICENSE)[^)]*\)", r"\1", linked)
