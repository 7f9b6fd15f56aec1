"""The RPC methods, one decorated function each. ``table`` finds and calls them.

All modules of this folder are loaded.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)
