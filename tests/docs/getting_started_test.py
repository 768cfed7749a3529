"""Runs the examples of the documentation: the shell blocks of getting-started.md and other-checkpoints.md, and the picture
in README.md.

bash runs each block ```sh of getting-started.md, in the order of the page and in one folder. A block ```text after it
has
lines of its output, on either stream and in any order. "exit code N" as the last line is the expected exit code; the
default is 0. A block ```console of README.md begins with "$ COMMAND"; the other lines are its output. In expected lines
"..." matches any text, "~/.local/state" is the folder of the test, and a decimal number matches any decimal number."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from launcher_case import BUILD, MARK, LauncherCase, main  # noqa: E402
from pages import ROOT, split  # noqa: E402
from test_hosts import wait_until  # noqa: E402

BLOCK_TIMEOUT_S = 120
ORACLE = ROOT / ".deps" / "oracle" / "bin" / "python3"


def examples(text, language):
    """Yields (line, script, expected lines) of each block to run."""
    _, blocks = split(text)
    if language == "console":
        for block in blocks:
            lines = block.text.splitlines()
            if block.language != "console" or not lines or lines[-1].startswith("$ "):
                continue  # commands without output
            command = [lines[0].removeprefix("$ ")]
            while command[-1].endswith("\\"):
                command.append(lines[len(command)])
            yield block.line, "\n".join(command), lines[len(command):]
        return
    for block, after in zip(blocks, blocks[1:] + [None]):
        if block.language == "sh":
            shown = after.text.splitlines() if after is not None and after.language == "text" else []
            yield block.line, block.text, shown


def pattern(shown):
    parts = []
    for part in re.split(r"(\.\.\.|~/\.local/state|\d+\.\d+)", shown):
        if part == "...":
            parts.append(".*")
        elif part == "~/.local/state":
            parts.append(r"\S+")
        elif re.fullmatch(r"\d+\.\d+", part):
            parts.append(r"\d+\.\d+")
        else:
            parts.append(re.escape(part))
    return re.compile("".join(parts))


def code_of(shown):
    match = re.fullmatch(r"\s*exit code (\d+)", shown[-1]) if shown else None
    return int(match.group(1)) if match else 0


class ExamplesTest(LauncherCase):
    def run_block(self, script):
        environment = {**self.base_environment(), MARK: self.mark,
                       "PATH": f"{BUILD / 'bin'}{os.pathsep}{os.environ['PATH']}"}
        process = subprocess.Popen(["bash", "-euo", "pipefail", "-c", script], env=environment, cwd=self.folder,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   start_new_session=True)
        try:
            output, _ = process.communicate(timeout=BLOCK_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            self.fail(f"still running after {BLOCK_TIMEOUT_S} s:\n{script}\nits output:\n{output.decode()}")
        return process.returncode, output.decode(errors="replace")

    def check_page(self, page, language):
        found = list(examples(page.read_text(encoding="utf-8"), language))
        self.assertTrue(found, f"{page.name} has no block to run")
        for line, script, shown in found:
            with self.subTest(f"{page.name}:{line}"):
                code, output = self.run_block(script)
                self.assertEqual(code_of(shown), code, f"exit code of\n{script}\nits output:\n{output}")
                written = output.splitlines()
                for wanted in shown:
                    self.assertTrue(any(pattern(wanted).fullmatch(got) for got in written),
                                    f"the page shows\n  {wanted}\nof\n{script}\nwhich wrote\n{output}")
        try:
            wait_until(lambda: not self.leftovers(), 5)
        except TimeoutError:
            self.fail("left running:\n" + "\n".join(map(str, self.leftovers())))

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
