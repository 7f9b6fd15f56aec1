"""Hooks of mkdocs (mkdocs.yml): the README becomes the site's first page, and benchmark results are copied to it.

In the repository a page links to ``../benchmarks/results/…`` and the README to ``docs/…``; on the site these links are
``results/…`` and ``…``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

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


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Turn links out of the docs folder into links of the site, or into text."""
    up = "../" * page.file.src_uri.count("/")
    out = re.escape("" if page.file.src_uri == "index.md" else f"{up}../")

    def on_site(link: re.Match[str]) -> str:
        there = (REPOSITORY / RESULTS / link.group(1)).is_file()
        return f"]({up}results/{link.group(1)})" if there else link.group(0)

    inside = re.sub(rf"\]\({out}{RESULTS}/([\w./-]+(?<!\.md))\)", on_site, markdown)
    return re.sub(rf"\[([^\]]+)\]\({re.escape(up)}\.\./[^)]+\)", r"\1", inside)


def of_readme(text: str) -> str:
    """Return the README with links as from the docs folder."""
    linked = re.sub(r"\]\(docs/", "](", text)
    return re.sub(r"\[([^\]]+)\]\((CONTRIBUTING|CHANGELOG|LICENSE)[^)]*\)", r"\1", linked)
