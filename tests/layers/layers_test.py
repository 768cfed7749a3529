"""Tests the dependency rule of the tree: packaging/layers.txt lists which folder may include which.

Fails on an include that the table does not allow, on a cycle among folders or files, and on a folder without a line
in the table. Also fails on a name that two headers of one program define. `python3 tests/layers/layers_test.py
FOLDER` checks the tree in FOLDER and prints its problems.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from measure import PRODUCT as TOP

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The folders of each half are linked into one program. If a name has two definitions there, an arbitrary one is used
# (one-definition rule).
HALVES = {"launcher": ("base", "proto", "net", "hostfiles", "rendezvous", "agent", "cli", "trainer/base", "trainer/mesh", "trainer/config",
                         "trainer/families"),
          "trainer": ("base", "proto/contract", "trainer")}
DEFINITION = re.compile(r"^(?:struct|class|enum class) (?:DSL_\w+(?:\(.*?\))? )?(?P<type>\w+)\b[^;{(]*\{"
                        r"|^(?:inline )?constexpr [^=\n(]*?\b(?P<constant>k\w+)\b"
                        r"|^using (?P<alias>\w+) ="
                        r"|^(?! |using|return|template)[\w:<>,&*\[\] ]+[ &*](?P<function>\w+\([^;{}]*?\))(?= *[;{]| noexcept)", re.M)
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]')


def expand(word):
    """Returns the words of a pattern with braces: "a/{b,c}" becomes ["a/b", "a/c"]."""
    match = re.fullmatch(r"(.*)\{(.*)\}(.*)", word)
    return [match[1] + name + match[3] for name in match[2].split(",")] if match else [word]


def folders_of(root, name):
    """Returns the folders to which a line of the table applies. "a/*" applies to each folder in a."""
    if not name.endswith("/*"):
        return [name]
    return [path.relative_to(root).as_posix() for path in (root / name).parent.iterdir() if path.is_dir()]


def read_table(root):
    table = {}
    for line in (root / "packaging/layers.txt").read_text().splitlines():
        line = line.split("#")[0].strip()
        if line:
            folder, _, words = line.partition(":")
            for name in folders_of(root, folder.strip()):
                table[name] = {name for word in words.split() for name in expand(word)}
    return table


def sources(root):
    for top in TOP:
        for path in sorted((root / top).rglob("*")):
            if path.suffix in (".h", ".cc"):
                yield path.relative_to(root).as_posix()


def layer_of(file, table):
    """Returns the table's entry for this file."""
    if file in table:
        return file
    if file.startswith("trainer/include/"):
        return "trainer/include"
    return file.rpartition("/")[0]


def included_file(root, text):
    """Returns the included file of the tree, or None for a library's file."""
    if text.startswith("dslaunch/"):
        return "trainer/include/" + text
    if (root / text).is_file() or re.fullmatch(r"proto/\w+\.pb\.h", text.replace(".grpc", "")):
        return text
    return None


def find_cycle(edges):
    """Returns a cycle of the graph {node: iterable of nodes} as a list of nodes, or None."""
    done, path = set(), []

    def inspection(node):
        if node in path:
            return path[path.index(node):] + [node]
        if node in done:
            return None
        path.append(node)
        for following in sorted(edges.get(node, ())):
            if cycle := inspection(following):
                return cycle
        path.pop()
        done.add(node)
        return None

    for start in sorted(edges):
        if cycle := inspection(start):
            return cycle
    return None


def definitions(text):
    """Yields the names that a header defines or declares, with namespaces and with the parameters of functions."""
    space = ".".join(re.findall(r"^namespace (\w+(?:::\w+)*) \{", text, re.M))
    for match in DEFINITION.finditer(text):
        yield f"{space}::" + re.sub(r"\s+", " ", next(name for name in match.groups() if name))


def names_twice(root):
    for half, folders in HALVES.items():
        where = {}
        for file in sources(root):
            if file.endswith(".h") and file.startswith(tuple(folder + "/" for folder in folders)):
                for name in set(definitions((root / file).read_text())):
                    where.setdefault(name, []).append(file)
        for name, headers in sorted(where.items()):
            if len(headers) > 1:
                yield f"{name} of the {half} is in {' and in '.join(headers)}: one program can hold one of them"


def problems(root):
    """Returns messages about the violations in the tree in `root`."""
    table = read_table(root)
    found = []
    files, folders = {}, {}
    for file in sources(root):
        layer = layer_of(file, table)
        if layer not in table:
            found.append(f"{file}: its folder has no line in packaging/layers.txt")
            continue
        files[file] = set()
        for number, line in enumerate((root / file).read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            target = included_file(root, match[1]) if match else None
            if target is None:
                continue
            files[file].add(target)
            to = layer_of(target, table)
            if to == layer:
                continue
            folders.setdefault(layer, set()).add(to)
            if to not in table[layer]:
                found.append(f"{file}:{number}: {layer} must not include {match[1]}; "
                             f"packaging/layers.txt allows it {' '.join(sorted(table[layer])) or 'nothing'}")
    for what, graph in (("table", table), ("folders", folders), ("files", files)):
        if cycle := find_cycle(graph):
            found.append(f"a cycle among the {what}: {' -> '.join(cycle)}")
    found.extend(names_twice(root))
    return found


class LayersTest(unittest.TestCase):
    def test_tree_has_no_violation(self):
        self.assertEqual([], problems(ROOT))

    def test_every_folder_of_the_table_exists(self):
        self.assertEqual([], [name for name in read_table(ROOT) if not (ROOT / name).exists()])

    def planted(self, file, line):
        """Returns the violations after `line` is added to `file` in a copy of the tree."""
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder)
            (copy / "packaging").mkdir()
            shutil.copy(ROOT / "packaging/layers.txt", copy / "packaging")
            for source in sources(ROOT):
                (copy / source).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / source, copy / source)
            with open(copy / file, "a") as stream:
                stream.write(line + "\n")
            run = subprocess.run([sys.executable, __file__, folder], capture_output=True, text=True, timeout=60)
            self.assertEqual(1, run.returncode, run.stderr)
            return run.stdout

    def test_reports_forbidden_include(self):
        found = self.planted("rendezvous/quorum.h", '#include "agent/host/binding.h"')
        self.assertRegex(found, r"rendezvous/quorum\.h:\d+: rendezvous must not include agent/host/binding\.h")

    def test_reports_cycle_of_files_within_a_folder(self):
        found = self.planted("base/error.h", '#include "base/os/subprocess.h"')
        self.assertIn("a cycle among the files: base/error.h -> base/os/subprocess.h -> base/error.h", found)

    def test_reports_definition_in_two_headers(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder)
            (copy / "packaging").mkdir()
            (copy / "packaging/layers.txt").write_text("base:\ntrainer/data:\n")
            for file, text in (("base/a.h", "Error Open(const std::string& path);\ninline constexpr int kMost = 1;\n"
                                "struct Row {\n};\nclass Named;\nint Size(int a);\n"),
                               ("trainer/data/b.h", "inline bool Open(const std::string& path) {\n}\n"
                                "inline constexpr uint32_t kMost = 2;\nclass Row final : public Base {\n};\n"
                                "class Named {\n};\nint Size(float a);\n")):
                (copy / file).parent.mkdir(parents=True, exist_ok=True)
                (copy / file).write_text(f"namespace dslaunch {{\n{text}}}\n")
            self.assertEqual([f"dslaunch::{name} of the trainer is in base/a.h and in trainer/data/b.h: "
                              "one program can hold one of them" for name in ("Open(const std::string& path)", "Row", "kMost")],
                             problems(copy))

    def test_reports_folder_without_a_line(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder)
            (copy / "packaging").mkdir()
            (copy / "packaging/layers.txt").write_text("base:\n")
            (copy / "base/new").mkdir(parents=True)
            (copy / "base/new/a.h").write_text("")
            self.assertEqual(["base/new/a.h: its folder has no line in packaging/layers.txt"], problems(copy))


if __name__ == "__main__":
    if len(sys.argv) == 2 and pathlib.Path(sys.argv[1]).is_dir():
        lines = problems(pathlib.Path(sys.argv[1]))
        print("\n".join(lines))
        sys.exit(1 if lines else 0)
    unittest.main()
