"""The report's page: its frame and its style, light and dark, wide and narrow. Text only; ``report`` fills it."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5c6878; --line: #dde2e9; --ground: #fff; --raised: #f5f7fa;
  --accent: #1766c2; --simulator: #3b7dc4; --agent: #2a9d8f; --launcher: #7d6fc0; --stranger-1: #e08a3c;
  --stranger-2: #d9b44a; --stranger-3: #c46a8f; --stranger-4: #a5744a; --rest: #b7a58f; --unnamed: #b3bcc8;
  --bad: #c62f2f; --down: #b96a00; --up: #2b8a3e; --band: rgb(198 47 47 / .16); }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --soft: #9aa6b5; --line: #2f3843; --ground: #14181d;
  --raised: #1c2229; --accent: #6fb1ff; --simulator: #4a86c5; --agent: #2f9e91; --launcher: #8b7fd0;
  --stranger-1: #d5803a; --stranger-2: #bf9d3f; --stranger-3: #b96287; --stranger-4: #94694a; --rest: #857767;
  --unnamed: #5b6675; --bad: #ff7b72; --down: #f0a24a; --up: #63c174; --band: rgb(255 123 114 / .24); } }
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
.incidents td, .incidents th { text-align: left; vertical-align: top; white-space: normal; }
.incidents th:first-child { white-space: nowrap; font-weight: normal; }
.incidents td:nth-child(2) { min-width: 17rem; overflow-wrap: anywhere; }
.incidents td:nth-child(3) { min-width: 11rem; overflow-wrap: anywhere; }
.incidents td:nth-child(4) { min-width: 14rem; overflow-wrap: anywhere; }
.incidents td:nth-child(5), .incidents td:nth-child(6) { min-width: 7rem; }
.events th, .events td { text-align: left; vertical-align: top; font-size: .9rem; }
.events td:last-child { white-space: normal; overflow-wrap: anywhere; min-width: 14rem; width: 100%; }
.events td:first-child, .events td:nth-child(2), small { color: var(--soft); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 1rem; }
figure { margin: 0; }
figcaption { margin-bottom: .3rem; font-size: .9rem; }
svg, video { width: 100%; height: auto; background: var(--raised); border-radius: .4rem; }
.course { min-width: 46rem; display: block; }
section > figure, section > details { margin-top: 1.2rem; }
.room { fill: var(--ground); background: var(--ground); }
.of-simulator { fill: var(--simulator); background: var(--simulator); }
.of-agent { fill: var(--agent); background: var(--agent); }
.of-launcher { fill: var(--launcher); background: var(--launcher); }
.stranger-1 { fill: var(--stranger-1); background: var(--stranger-1); }
.stranger-2 { fill: var(--stranger-2); background: var(--stranger-2); }
.stranger-3 { fill: var(--stranger-3); background: var(--stranger-3); }
.stranger-4 { fill: var(--stranger-4); background: var(--stranger-4); }
.stranger-rest { fill: var(--rest); background: var(--rest); }
.unnamed { fill: var(--unnamed); background: var(--unnamed); }
.stood { fill: var(--band); background: var(--band); pointer-events: none; }
.limit { stroke: var(--bad); stroke-width: 1.5; }
.seam { stroke: var(--soft); stroke-dasharray: 3 3; fill: none; }
.fault { fill: var(--bad); }
.passed { fill: none; stroke: var(--soft); stroke-width: 1.5; }
.down { fill: var(--down); }
.up { fill: var(--up); }
.restart { fill: var(--accent); }
.key { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; font-size: .85rem; margin: .4rem 0 0; }
.key i { display: inline-block; width: .8rem; height: .8rem; margin-right: .4rem; border-radius: .15rem;
  vertical-align: -.08rem; border: 1px solid var(--line); }
.key .sign { width: .9rem; height: .9rem; margin-right: .35rem; vertical-align: -.12rem; background: none; }
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
