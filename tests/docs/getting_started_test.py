"""Runs the examples of the documentation (page_examples.py): the shell blocks of getting-started.md and
other-checkpoints.md, and the picture in README.md."""

import subprocess
import unittest

from page_examples import BLOCK_TIMEOUT_S, ORACLE, PageCase, code_of, examples, pattern
from launcher_case import main
from pages import ROOT


class ExamplesTest(PageCase):
    def test_getting_started_examples_run(self):
        self.check_page(ROOT / "docs" / "getting-started.md", "sh")

    def test_other_checkpoints_examples_run(self):
        if not ORACLE.exists():
            self.skipTest("needs .deps/oracle; packaging/fetch-oracle fetches it")
        make = ("import sys; sys.path.insert(0, sys.argv[1]); import torch, zero_folder; "
                "zero_folder.write_zero3(sys.argv[2], {'w': torch.rand(5, 3), 'b': torch.rand(3)}, 2)")
        subprocess.run([str(ORACLE), "-c", make, str(ROOT / "tests" / "trainer" / "foreign"), str(self.folder / "checkpoint-500")],
                       check=True, timeout=BLOCK_TIMEOUT_S)
        self.check_page(ROOT / "docs" / "other-checkpoints.md", "sh")

    def test_readme_picture_matches_output(self):
        self.check_page(ROOT / "README.md", "console")


class ReaderTest(unittest.TestCase):
    def test_examples_finds_blocks_and_exit_codes(self):
        text = "```sh\na\n```\nwords\n```text\nexit code 7\n```\n```sh\nb\n```\n```console\n$ c \\\n  d\nout\n```\n"
        self.assertEqual([(1, "a\n", ["exit code 7"]), (8, "b\n", [])], list(examples(text, "sh")))
        self.assertEqual([(11, "c \\\n  d", ["out"])], list(examples(text, "console")))
        self.assertEqual((7, 0, 0), (code_of(["  exit code 7"]), code_of(["x"]), code_of([])))

    def test_page_begins_with_pip_and_first_job(self):
        page = (ROOT / "docs" / "getting-started.md").read_text(encoding="utf-8")
        self.assertLess(page.index("pip install"), page.index("build"))
        self.assertLess(next(examples(page, "sh"))[0], 25, "the first job is below the first screen")

    def test_decimals_and_ellipsis_match_any_value(self):
        self.assertTrue(pattern("after 1.1 s: ... (x)").fullmatch("after 23.45 s: y z (x)"))
        self.assertFalse(pattern("rank 3").fullmatch("rank 30"))


if __name__ == "__main__":
    main()
