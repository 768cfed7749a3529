"""What base/mutex.h guards is touched only with its mutex held: clang says so, by its analysis of thread safety.

`thread_safety_test.py BUILD`: files and flags are those of BUILD/compile_commands.json, which may lack the trainer; the
generated headers are there once BUILD was built. clang reads each source that includes base/mutex.h, with those that are
compiled together with it. For a header
that does, it reads the header's own sources (of a.h: a.cc, a_more.cc), else one source that includes it. What CMake
precompiles for GCC is precompiled here for clang, too: without that the test takes minutes.
"""
import concurrent.futures
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOP = ("base", "proto", "net", "hostfiles", "rendezvous", "agent", "cli", "trainer")
MUTEX = "base/mutex.h"
INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)
CHECKS = ("-Wno-everything", "-Wthread-safety", "-Werror=thread-safety", "-fsyntax-only")
NOT_RUN = 77
BUILD = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else ROOT / "build"


def clang(*arguments):
    return subprocess.run([shutil.which("clang++"), *map(str, arguments)], cwd=BUILD, capture_output=True, text=True,
                          timeout=200)


def include_graph():
    """{file: the files of the tree that it includes} of all headers and sources."""
    return {path.relative_to(ROOT).as_posix(): set(INCLUDE.findall(path.read_text()))
            for top in TOP for path in sorted((ROOT / top).rglob("*")) if path.suffix in (".h", ".cc")}


def reaches(graph, file, header):
    """Whether `file` includes `header`, itself or by what it includes."""
    seen, left = set(), [file]
    while left:
        included = graph.get(left.pop(), set()) - seen
        seen |= included
        left.extend(included)
    return header in seen


def files_to_check(graph):
    """The sources that use base/mutex.h, as above."""
    found = set()
    for user in (file for file, included in graph.items() if MUTEX in included):
        if user.endswith(".cc"):
            found.add(user)
            continue
        # Of child_process.h, child_process.cc; of node_agent.h, node_agent_actions.cc too.
        own = {file for file, included in graph.items()
               if file.endswith(".cc") and file.startswith(user[:-2]) and user in included}
        found |= own or {next(file for file in graph if file.endswith(".cc") and reaches(graph, file, user))}
    return sorted(found)


def commands():
    """{file: (what the compiler is given, how)} of the build; files that are compiled together are given as one."""
    found = {}
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["file"])
        files = map(pathlib.Path, INCLUDE.findall(path.read_text())) if "/Unity/" in entry["file"] else [path]
        for file in files:
            if file.is_relative_to(ROOT):
                found.setdefault(file.relative_to(ROOT).as_posix(), (path, shlex.split(entry["command"])))
    return found


def flags_of(command):
    """What clang needs to read a file as GCC does: its include folders, macros and language."""
    flags, words = [], iter(command)
    for word in words:
        if word == "-isystem":
            flags.append((word, next(words)))
        elif word.startswith(("-I", "-D", "-std=")):
            flags.append((word,))
    return flags


def precompiled_header_of(command):
    return next((word for word in command if word.endswith("cmake_pch.hxx")), None)


class ThreadSafetyTest(unittest.TestCase):
    def test_what_a_mutex_guards_is_touched_only_with_it_held(self):
        known = commands()
        given = dict(known[file] for file in files_to_check(include_graph()) if file in known)
        self.assertTrue(given)
        groups = {}
        for file, command in given.items():
            groups.setdefault(precompiled_header_of(command), []).append(file)
        with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
            # All files of a group with the same flags, as a precompiled header wants it.
            flags = {header: [word for flag in dict.fromkeys(flag for file in group for flag in flags_of(given[file]))
                              for word in flag] for header, group in groups.items()}

            def precompile(header):
                if header is None:
                    return []
                output = f"{folder}/{pathlib.Path(header).parent.name}.pch"
                made = clang(*flags[header], "-Wno-everything", "-x", "c++-header", header, "-o", output)
                self.assertEqual(0, made.returncode, made.stderr)
                return ["-include-pch", output]

            precompiled = dict(zip(groups, pool.map(precompile, groups)))
            runs = {file: pool.submit(clang, *flags[header], *precompiled[header], *CHECKS, file)
                    for header, group in groups.items() for file in group}
            wrong = [run.result().stderr for run in runs.values() if run.result().returncode != 0]
        self.assertEqual([], wrong, "\n".join(wrong))

    def test_what_is_touched_without_its_mutex_is_found(self):
        arguments = ("-std=c++20", f"-I{ROOT}", *CHECKS, ROOT / "tests/layers/unguarded_read.cc")
        self.assertEqual("", clang(*arguments).stderr)
        run = clang("-DUNGUARDED", *arguments)
        self.assertEqual(1, run.returncode)
        self.assertEqual(["reading variable 'count_", "calling function 'AddLocked", "reading variable 'count_",
                          "calling function 'Wait"], re.findall(r"error: (\w+ \w+ '\w+)", run.stderr), run.stderr)

    def test_users_of_a_header_are_found(self):
        graph = {MUTEX: set(), "a/b.h": {MUTEX}, "a/b.cc": {"a/b.h"}, "a/b_more.cc": {"a/b.h"}, "a/c.cc": {"a/b.h"},
                 "d/alone.h": {MUTEX}, "d/e.h": {"d/alone.h"}, "d/f.cc": {"d/e.h"}, "d/g.cc": {"d/e.h"},
                 "d/h.cc": {MUTEX}}
        self.assertEqual(["a/b.cc", "a/b_more.cc", "d/f.cc", "d/h.cc"], files_to_check(graph))


if __name__ == "__main__":
    if shutil.which("clang++") is None:
        print("clang is not installed (Debian 12: apt-get install clang)")
        sys.exit(NOT_RUN)
    unittest.main()
