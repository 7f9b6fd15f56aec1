"""Figures as a table with a column a driver, so that a dozen figures of five drivers fit a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Mapping

from rich import box
from rich.table import Table


def in_columns(title: str, groups: Mapping[str, Mapping[str, Mapping[str, str]]], caption: str | None = None) -> Table:
    """Return what each group's members have to show, a column a member: there are few of them, and many figures.

    Args:
        groups: by its heading, which is left out where it is empty, members by name, figures by name.
        caption: below it.
    """
    names = list(dict.fromkeys(name for members in groups.values() for name in members))
    view = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    view.title, view.caption, view.title_justify, view.caption_justify = title, caption, "left", "left"
    view.add_column(no_wrap=True)
    for name in names:
        view.add_column(name, justify="right")
    for heading, members in groups.items():
        if heading:
            view.add_row(heading, style="bold")
        for figure in dict.fromkeys(figure for figures in members.values() for figure in figures):
            view.add_row(figure, *(members.get(name, {}).get(figure, "") for name in names))
        view.add_section()
    return view
