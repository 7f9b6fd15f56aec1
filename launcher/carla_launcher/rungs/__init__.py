"""The ways to give way: a kind a file, as ``does`` of a ladder's line names it; all files of this folder are loaded.

A kind says which steps a line comes to, what they free of a simulator's memory, and what is done to the programs to
take and to undo one. It does nothing itself: ``act`` carries it out. Knows no program's keys.
"""

import importlib
import pkgutil

for _each in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_each.name}")
