"""The kinds of rungs, one per file; ``does`` of a rung names its kind. All files of this folder are imported.

A kind defines the steps of a rung, what they free of the simulator's memory, and which program's restart takes and
undoes a step. ``act`` restarts it. A kind knows no key of the agent's configuration.
"""

import importlib
import pkgutil

for _each in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_each.name}")
