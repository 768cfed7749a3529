"""Runs the examples of a page: bash runs each block ```sh, in the order of the page and in one folder.

Where a page asks for it, python3 of .deps/oracle runs each block ```python the same way. A block ```text after an
example has lines of its output, on either stream and in any order. "exit code N" as the last line is the expected exit
code; the default is 0.
A block ```console of README.md begins with "$ COMMAND", and its other lines are the output. In expected lines, "..."
matches any text, "~/.local/state" is the folder of the test, and a decimal number matches any decimal number."""

import os
import pathlib
import re
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from launcher_case import BUILD, MARK, LauncherCase  # noqa: E402
from pages import ROOT, split  # noqa: E402
from test_hosts import wait_until  # noqa: E402

BLOCK_TIMEOUT_S = 120
ORACLE = ROOT / ".deps" / "oracle" / "bin" / "python3"


def examples(text, language):
    """Yields (line, script, expected lines) of each block to run. Language "sh+python" runs blocks of both."""
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
        if block.language in language.split("+"):
            shown = after.text.splitlines() if after is not None and after.language == "text" else []
            script = block.text
            if block.language == "python":
                script = f"{ORACLE} - <<'END_OF_BLOCK'\n{block.text}END_OF_BLOCK\n"
            yield block.line, script, shown


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


class PageCase(LauncherCase):
    block_timeout_s = BLOCK_TIMEOUT_S

    def run_block(self, script):
        environment = {**self.base_environment(), MARK: self.mark, "HF_HUB_OFFLINE": "1",
                       "PATH": f"{BUILD / 'bin'}{os.pathsep}{os.environ['PATH']}"}
        process = subprocess.Popen(["bash", "-euo", "pipefail", "-c", script], env=environment, cwd=self.folder,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   start_new_session=True)
        try:
            output, _ = process.communicate(timeout=self.block_timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            self.fail(f"still running after {self.block_timeout_s} s:\n{script}\nits output:\n{output.decode()}")
        return process.returncode, output.decode(errors="replace")

    def check_page(self, page, language, edit=lambda text: text, compare=lambda wanted, got: None):
        """Runs the blocks of the page, after `edit` has changed its text. Calls compare(line of the page, line of
        the output) for each expected line."""
        found = list(examples(edit(page.read_text(encoding="utf-8")), language))
        self.assertTrue(found, f"{page.name} has no block to run")
        for line, script, shown in found:
            with self.subTest(f"{page.name}:{line}"):
                code, output = self.run_block(script)
                self.assertEqual(code_of(shown), code, f"exit code of\n{script}\nits output:\n{output}")
                written = output.splitlines()
                for wanted in shown:
                    matching = [got for got in written if pattern(wanted).fullmatch(got)]
                    self.assertTrue(matching, f"the page shows\n  {wanted}\nof\n{script}\nwhich wrote\n{output}")
                    compare(wanted, matching[0])
        try:
            wait_until(lambda: not self.leftovers(), 5)
        except TimeoutError:
            self.fail("left running:\n" + "\n".join(map(str, self.leftovers())))
