"""``extension.py FOLDER GROUP FILE…``: compile modules into a folder; run in the folder that holds their package.

A program of its own, since setuptools and mypyc work in the current folder and end the process on an error.
"""

from __future__ import annotations

import sys

from mypyc.build import mypycify
from setuptools import setup


def main() -> None:
    """Compile what the command line names."""
    folder, group, *files = sys.argv[1:]
    options = ["--config-file=", "--cache-dir=/dev/null", "--ignore-missing-imports"]
    extensions = mypycify([*options, *files], opt_level="1", debug_level="0", group_name=group, target_dir="c")
    for extension in extensions:
        # As the interpreter computes: no product and sum rounded once, as compilers do for processors that can.
        extension.extra_compile_args += ["-ffp-contract=off", "-fno-fast-math"]
    setup(name=group, ext_modules=extensions, script_args=["build_ext", "--build-lib", folder, "--build-temp", "o"])


if __name__ == "__main__":
    main()
