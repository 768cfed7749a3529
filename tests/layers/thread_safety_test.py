"""Tests that data guarded by base/mutex.h is used only with its mutex held, according to clang's thread safety
analysis.

`thread_safety_test.py BUILD`: the compilation of BUILD by clang is the check itself. This test verifies that the
compilation checks all files and finds violations. Not run if BUILD was compiled by another compiler, which does not
check.
"""
import json
import pathlib
import re
import shlex
import subprocess
import sys
import unittest

from measure import PRODUCT as TOP

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else ROOT / "build"
NOT_RUN = 77


def commands():
    """Returns {file: command} for each C++ file of the programs, and for files that are compiled together with them."""
    entries = json.loads((BUILD / "compile_commands.json").read_text())
    return {entry["file"]: shlex.split(entry["command"]) for entry in entries
            if entry["file"].startswith(tuple(f"{root}/{top}/" for root in (ROOT, BUILD) for top in TOP))}


def compiler():
    """Returns the compiler of BUILD, or None if it is not clang."""
    words = next(iter(commands().values()))
    path = next(word for word in words if pathlib.Path(word).name.startswith(("clang++", "g++", "c++")))
    version = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60).stdout
    return path if "clang version" in version else None


class ThreadSafetyTest(unittest.TestCase):
    def test_all_files_are_checked(self):
        self.assertEqual([], [file for file, words in commands().items() if "-Wthread-safety" not in words])

    def test_finds_access_without_mutex(self):
        def check(*more):
            return subprocess.run(
                [compiler(), "-std=c++20", f"-I{ROOT}", "-Wthread-safety", "-Werror", "-fsyntax-only", *more,
                 ROOT / "tests/layers/unguarded_read.cc"], capture_output=True, text=True, timeout=60)

        self.assertEqual("", check().stderr)
        run = check("-DUNGUARDED")
        self.assertEqual(1, run.returncode)
        self.assertEqual(["reading variable 'count_", "calling function 'AddLocked", "reading variable 'count_",
                          "calling function 'Wait"], re.findall(r"error: (\w+ \w+ '\w+)", run.stderr), run.stderr)


if __name__ == "__main__":
    if compiler() is None:
        print("dslaunch was not compiled by clang, which checks what mutexes guard (packaging/cmake/Compiler.cmake)")
        sys.exit(NOT_RUN)
    unittest.main()
