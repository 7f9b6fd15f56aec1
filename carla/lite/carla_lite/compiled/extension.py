"""``extension.py FOLDER GROUP FILE…``: compile modules into a folder; run in the folder that holds their package.

It is a separate program, because setuptools and mypyc work in the current folder and end the process on an error.
"""

from __future__ import annotations

import sys

from mypyc.build import mypycify
from setuptools import setup


def main() -> None:
    """Compile the files on the command line."""
    folder, group, *files = sys.argv[1:]
    options = ["--config-file=", "--cache-dir=/dev/null", "--ignore-missing-imports"]
    extensions = mypycify([*options, *files], opt_level="1", debug_level="0", group_name=group, target_dir="c")
    for extension in extensions:
        # Compute like the interpreter: compilers must not fuse a product and a sum into one rounding.
        extension.extra_compile_args += ["-ffp-contract=off", "-fno-fast-math"]
    setup(name=group, ext_modules=extensions, script_args=["build_ext", "--build-lib", folder, "--build-temp", "o"])


if __name__ == "__main__":
    main()
