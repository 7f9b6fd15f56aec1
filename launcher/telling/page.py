"""The report's page: its frame and its style, light and dark, wide and narrow. Text only; ``report`` fills it."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5c6878; --line: #dde2e9; --ground: #fff; --raised: #f5f7fa;
  --accent: #1766c2; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --soft: #9aa6b5; --line: #2f3843; --ground: #14181d;
  --raised: #1c2229; --accent: #6fb1ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 68rem; padding: 1.5rem 1rem 4rem; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { margin: 0; font-size: 1.6rem; overflow-wrap: anywhere; }
h2 { margin: 2.2rem 0 .6rem; font-size: 1.15rem; }
p { margin: .3rem 0 .8rem; color: var(--soft); }
a { color: var(--accent); }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(10.5rem, 1fr)); gap: .6rem; margin: 1.2rem 0 0; }
dl div { padding: .5rem .7rem; background: var(--raised); border-radius: .4rem; overflow-wrap: anywhere; }
dt { color: var(--soft); font-size: .8rem; }
dd { margin: 0; }
.wide { overflow-x: auto; }
.wide + p { margin-top: 1.2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .6rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child { text-align: left; }
tr:first-child th { font-size: .85rem; color: var(--soft); }
.events tr:first-child th { color: inherit; }
.shortages td, .shortages th { text-align: left; vertical-align: top; }
.shortages td:last-child { white-space: normal; overflow-wrap: anywhere; min-width: 14rem; }
.events th, .events td { text-align: left; vertical-align: top; font-size: .9rem; }
.events td:last-child { white-space: normal; overflow-wrap: anywhere; min-width: 14rem; width: 100%; }
.events td:first-child, .events td:nth-child(2), small { color: var(--soft); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 1rem; }
figure { margin: 0; }
figcaption { margin-bottom: .3rem; font-size: .9rem; }
svg, video { width: 100%; height: auto; background: var(--raised); border-radius: .4rem; }
.grid { stroke: var(--line); }
.curve { fill: none; stroke: var(--accent); stroke-width: 2; stroke-linejoin: round; }
.dot { fill: var(--accent); }
.label { fill: var(--soft); font: 12px system-ui, sans-serif; }
pre { overflow-x: auto; padding: .8rem; background: var(--raised); border-radius: .4rem; font-size: .85rem; }
""".strip()

PAGE = (
    """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
"""
    + STYLE.replace("{", "{{").replace("}", "}}")
    + """
</style>
</head>
<body>
<h1>{title}</h1>
<p>{outcome}</p>
<dl>{facts}</dl>
{body}
</body>
</html>
"""
)
"""A format string: ``title``, ``outcome``, ``facts``, ``body``, each already escaped."""


def figures(charts: Mapping[str, str]) -> str:
    """Return charts by title as one block; empty where none has anything drawn."""
    drawn = [f"<figure><figcaption>{safe(title)}</figcaption>{svg}</figure>" for title, svg in charts.items() if svg]
    return f"<div class=charts>{''.join(drawn)}</div>" if drawn else ""


def safe(value: Any) -> str:
    """Return anything as text that is no markup."""
    return html.escape(str(value))
