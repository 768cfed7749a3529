"""Tests that every relative link and anchor in the documentation resolves, and that every path of the tree in it
exists."""

import itertools
import re
import sys
import unittest

from pages import ROOT, anchors, code_words, links, pages

# PATH matches `folder/...` of the tree in inline code, if the code is a path and not a part of a command.
TOP_FOLDERS = ("agent", "base", "cli", "docs", "examples", "hostfiles", "net", "packaging", "proto", "rendezvous", "tests",
               "trainer")
PATH = re.compile(r"^(?:%s)/[\w./{},*-]*$" % "|".join(TOP_FOLDERS))
BRACES = re.compile(r"\{([^{}]*)\}")
GENERATED = {"docs/kill-matrix.md"}  # a program writes this page from its observations


def spelt_out(pattern):
    """Returns the paths of a pattern with braces: "a/{b,c}" becomes a/b and a/c."""
    match = BRACES.search(pattern)
    if not match:
        return [pattern]
    return list(itertools.chain.from_iterable(
        spelt_out(pattern[:match.start()] + word + pattern[match.end():]) for word in match.group(1).split(",")))


def exists(path):
    """Returns whether a file or folder exists. "dir/unit" stands for its sources."""
    path = path.rstrip("/")
    return any(True for _ in ROOT.glob(path)) or any(True for _ in ROOT.glob(path + ".*"))


class LinksTest(unittest.TestCase):
    def check(self, find):
        problems = []
        for page in pages():
            name = str(page.relative_to(ROOT))
            text = page.read_text(encoding="utf-8")
            problems += [f"{name}:{line}: {problem}" for line, problem in find(page, text)]
        self.assertFalse(problems, "\n" + "\n".join(problems))

    def test_links_and_anchors_resolve(self):
        def find(page, text):
            for line, target in links(text):
                if re.match(r"[a-z][a-z0-9+.-]*:", target):  # https:, mailto:
                    continue
                path, _, fragment = target.partition("#")
                goal = (page.parent / path).resolve() if path else page
                if ROOT not in goal.parents and goal != ROOT:
                    yield line, f"{target} leaves the checkout"
                elif not goal.exists():
                    yield line, f"{target} does not exist"
                elif fragment and goal.suffix == ".md" and fragment not in anchors(goal.read_text(encoding="utf-8")):
                    yield line, f"{target}: no heading of {goal.relative_to(ROOT)} has this anchor"
        self.check(find)

    def test_paths_of_the_tree_exist(self):
        def find(page, text):
            if str(page.relative_to(ROOT)) in GENERATED:
                return
            for line, word in code_words(text):
                word = word.split(" ")[0]
                if PATH.match(word):
                    for path in spelt_out(word):
                        if not exists(path):
                            yield line, f"{path} does not exist"
        self.check(find)

    def test_overview_lists_every_folder(self):
        table = (ROOT / "packaging" / "layers.txt").read_text(encoding="utf-8")
        overview = (ROOT / "docs" / "design" / "overview.md").read_text(encoding="utf-8")
        named = set()
        for _, word in code_words(overview):
            for path in spelt_out(word):
                while path:  # includes all parent folders
                    named.add(path.rstrip("/"))
                    path = path.rstrip("/").rpartition("/")[0]
        folders = {line.partition(":")[0].strip().removesuffix("/*") for line in table.splitlines() if re.match(r"[a-z]", line)}
        self.assertGreater(len(folders), 30)
        missing = sorted(folder for folder in folders if folder not in named)
        self.assertFalse(missing, "docs/design/overview.md has no line for " + ", ".join(missing))

    def test_every_page_of_docs_is_linked(self):
        docs = ROOT / "docs"
        seen, todo = set(), [docs / "index.md"]
        while todo:
            page = todo.pop()
            if page in seen:
                continue
            seen.add(page)
            for _, target in links(page.read_text(encoding="utf-8")):
                goal = (page.parent / target.partition("#")[0]).resolve()
                if goal.suffix == ".md" and goal.exists() and docs in goal.parents:
                    todo.append(goal)
        left = sorted(str(page.relative_to(ROOT)) for page in set(docs.rglob("*.md")) - seen)
        self.assertFalse(left, "no link from docs/index.md leads to " + ", ".join(left))


class ReaderTest(unittest.TestCase):
    """Tests the checks above."""

    def test_finds_links_outside_of_code(self):
        text = "see [a](b.md#c) and `[x](no.md)`\n```\n[y](no.md)\n```\n![p](pic.png \"title\")\n"
        self.assertEqual([(1, "b.md#c"), (5, "pic.png")], list(links(text)))

    def test_finds_anchors_of_headings(self):
        text = "# DeepSpeed's configuration in `dslaunch train`\n## A\n## A\n```\n# no heading\n```\n"
        self.assertEqual({"deepspeeds-configuration-in-dslaunch-train", "a", "a-1"}, anchors(text))

    def test_finds_missing_paths(self):
        self.assertEqual(["cli/a", "cli/b"], spelt_out("cli/{a,b}"))
        self.assertTrue(exists("tests/docs/links_test"))
        self.assertTrue(exists("tests/docs/*.py"))
        self.assertFalse(exists("tests/docs/nothing"))


if __name__ == "__main__":
    unittest.main(verbosity=2, argv=[sys.argv[0], *sys.argv[1:]])
