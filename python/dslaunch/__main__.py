"""Implements `python -m dslaunch`: runs the program dslaunch of this package's installation with this interpreter."""

import importlib.metadata
import os
import shutil
import sys


def _find_program():
    """Returns the path of dslaunch: the file that pip installed with this package, else the file in PATH, else None."""
    try:
        files = importlib.metadata.files("dslaunch") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        path = os.path.normpath(file.locate())
        if file.name == "dslaunch" and os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return shutil.which("dslaunch")


def main():
    program = _find_program()
    if program is None:
        sys.exit("python -m dslaunch: the program dslaunch is neither installed with this package nor in PATH; "
                 "pip install dslaunch, or add its folder to PATH")
    # Ranks use this interpreter, as those of torchrun do.
    os.environ.setdefault("PYTHON_EXEC", sys.executable)
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
