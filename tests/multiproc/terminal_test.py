"""Tests dslaunch at a terminal: redrawn lines of ranks, colours, stdin, --pty, and the progress bar."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from launcher_case import DSLAUNCH, MARK, LauncherCase, bash, main  # noqa: E402
from test_hosts import wait_until  # noqa: E402

ONE_RANK = ["--launcher", "local", "--num_nodes", "1", "--num_gpus", "1"]
TWO_RANKS = ["--launcher", "local", "--num_nodes", "1", "--num_gpus", "2"]

BAR = r"""import os, sys, time
for percent in range(0, 101, 5):
    sys.stderr.write("\r%s %3d%%|%s|" % (os.environ["RANK"], percent, "#" * (percent // 10)))
    sys.stderr.flush()
    time.sleep(0.02)
sys.stderr.write("\n")
print("end")
"""


def screen_of(data):
    """Returns the lines that a terminal shows after these bytes, including lines that have scrolled away."""
    lines, row, column = [""], 0, 0
    for piece in re.findall(r"\x1b\[[0-9;]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", data.decode(errors="replace")):
        if piece == "\r":
            column = 0
        elif piece == "\n":
            row += 1
            if row == len(lines):
                lines.append("")
        elif piece == "\x1b[K":
            lines[row] = lines[row][:column]
        elif piece == "\x1b[A":
            row -= 1
        elif not piece.startswith("\x1b"):
            line = lines[row].ljust(column)
            lines[row] = line[:column] + piece + line[column + len(piece):]
            column += len(piece)
    return lines


class AtTerminal(LauncherCase):
    def at_terminal(self, *arguments, env=None, columns=80):
        """Starts dslaunch in the foreground of its own terminal."""
        environment = {**self.base_environment(), MARK: self.mark, "TERM": "xterm", **(env or {})}
        if "NO_COLOR" not in (env or {}):
            environment.pop("NO_COLOR", None)
        pid, self.terminal = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.execve(DSLAUNCH, [DSLAUNCH, *[str(word) for word in arguments]], environment)
        self.addCleanup(os.close, self.terminal)
        self.resize(columns)
        os.set_blocking(self.terminal, False)
        self.pid, self.shown, self.code = pid, b"", None

    def resize(self, columns):
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def look(self):
        try:
            while data := os.read(self.terminal, 65536):
                self.shown += data
        except OSError:
            pass
        if self.code is None:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                self.code = os.waitstatus_to_exitcode(status)
                return self.look()
        return self.shown.decode(errors="replace")

    def await_text(self, pattern, timeout_s=60):
        def found():
            text = self.look()
            if not re.search(pattern, text) and self.code is not None:
                self.fail(f"it ended with {self.code} without {pattern!r}:\n{text}")
            return re.search(pattern, text)
        wait_until(found, timeout_s, pattern)

    def end(self, code=0, timeout_s=60):
        wait_until(lambda: self.look() is not None and self.code is not None, timeout_s, "the end")
        self.assertEqual(code, self.code, self.shown.decode(errors="replace"))
        return screen_of(self.shown)

    def script(self, text):
        path = self.folder / "script.py"
        path.write_text(text)
        return ["python3", path]

    def test_progress_bar_is_one_line_per_rank(self):
        self.at_terminal(*TWO_RANKS, "--show", "all", *self.script(BAR))
        lines = self.end()
        bars = [line for line in lines if "%|" in line]
        self.assertEqual([f"[localhost:{rank}] {rank} 100%|##########|" for rank in (0, 1)], sorted(bars), lines)
        self.assertNotIn("5%|", "\n".join(lines))

    def test_passes_colors_unless_no_color_is_set(self):
        program = bash(r"printf '\033[31mred\033[0m \033[2J\n'")
        self.at_terminal(*ONE_RANK, *program)
        self.end()
        self.assertIn(b"\x1b[31mred\x1b[0m", self.shown)
        self.assertNotIn(b"\x1b[2J", self.shown)
        self.at_terminal(*ONE_RANK, *program, env={"NO_COLOR": "1"})
        self.end()
        self.assertNotIn(b"\x1b[31m", self.shown)

    def test_only_shown_rank_has_no_prefix(self):
        self.at_terminal(*TWO_RANKS, *bash('echo "name | value"; echo "dslaunch: forged"'))
        lines = self.end()
        self.assertIn("name | value", lines)
        self.assertIn("[localhost:0] dslaunch: forged", lines)
        self.assertTrue(any("--show all" in line for line in lines), lines)

    def test_breakpoint_reads_from_terminal(self):
        self.at_terminal(*ONE_RANK, *self.script("x = 6\nbreakpoint()\nprint('went on')\n"))
        self.await_text(r"\(Pdb\) $")
        os.write(self.terminal, b"p x * 7\n")
        self.await_text(r"(?m)^42\r?$")
        os.write(self.terminal, b"c\n")
        lines = self.end()
        self.assertIn("(Pdb) p x * 7", lines)
        self.assertIn("went on", lines)

    def test_pty_gives_each_rank_a_terminal(self):
        self.at_terminal(*TWO_RANKS, "--show", "all", "--pty", *self.script(
            "import os, sys\n"
            "print(os.environ['RANK'], sys.stdin.isatty(), sys.stdout.isatty(), sys.stderr.isatty())\n"
            "if os.environ['RANK'] == '0':\n"
            "    print('columns', os.get_terminal_size().columns)\n"
            "    print('read', input('? '))\n"), columns=71)
        self.await_text(r"\? $")
        os.write(self.terminal, b"hello\n")
        lines = self.end()
        for line in ("0 True True True", "1 False False False", "read hello"):
            self.assertTrue(any(shown.endswith("] " + line) for shown in lines), (line, lines))
        self.assertTrue(any(re.search(r"columns \d+", line) for line in lines), lines)

    def test_rank_0_reads_stdin_from_a_pipe(self):
        script = 'if [ $RANK = 0 ]; then wc -c; else cat; fi'
        for options, count in (((), 300_000), (("--stdin", "none"), 0)):
            process = self.popen_with_input([DSLAUNCH, *TWO_RANKS, *options, *bash(script)])
            output, errors = process.communicate(b"x" * 300_000, timeout=60)
            self.assertEqual(0, process.returncode, output)
            self.assertRegex(output.decode(), rf"(?m)^\[localhost:0\] {count}$")
            self.assertEqual(not options, b"rank 0 reads this command's stdin" in errors, errors)

    def test_leaves_stdin_to_a_shell_that_reads_it(self):
        """With ssh and mpirun, the loop's first job would read the rest of the list."""
        (self.folder / "list").write_text("a\nb\nc\n")
        loop = f"while read host; do echo $host; timeout 60 {DSLAUNCH} -n 1 cat; done"
        for line in (f"{loop} < list", f"cat list | {loop}"):
            process = self.popen_with_input(["bash", "-c", line])
            output, errors = process.communicate(timeout=60)
            self.assertEqual((0, b"a\nb\nc\n"), (process.returncode, output), errors)
            self.assertIn(b"no rank reads this command's stdin", errors)
            self.assertIn(b"--stdin 0", errors)
        process = self.popen_with_input(["bash", "-c", f"echo hello | {DSLAUNCH} -n 1 cat; {DSLAUNCH} -n 1 cat < list"])
        output, errors = process.communicate(timeout=60)
        self.assertEqual((0, ["hello", "a", "b", "c"]),
                         (process.returncode, re.findall(r"(?m)^\[localhost:0\] (.*)$", output.decode())), errors)
        self.assertNotIn(b"stdin", errors)

    def test_hint_after_breakpoint_names_stdin_option(self):
        script = self.folder / "stop.py"
        script.write_text("breakpoint()\n")
        code, job = self.run_job(*TWO_RANKS, script)
        self.assert_code(1, code, job)
        self.assert_prints(job, r"its stdin is empty; give --stdin 0 for rank 0 .*breakpoint\(\) on rank 0 only")

    def popen_with_input(self, argv):
        environment = {**self.base_environment(), MARK: self.mark}
        return subprocess.Popen([str(word) for word in argv], env=environment, cwd=self.folder, stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def test_progress_bar_adapts_to_resizing(self):
        script = r"""touch "$PWD/up.$RANK"
            for step in $(seq 1 1000); do
              printf '{"event":"step","step":%d,"total_steps":1000,"loss":0.25,"samples_per_s":512}\n' $step >&$DSLAUNCH_STATUS_FD
              sleep 0.05; [ ! -e "$PWD/go" ] || break
            done"""
        self.at_terminal(*ONE_RANK, *bash(script), columns=100)
        self.await_text(r"step \d+/1000  \[=*> *\]   \d%  loss 0\.25  512 samples/s")
        self.resize(40)
        before = len(self.shown)

        def redrawn():
            self.look()
            pieces = re.split(r"[\r\n]", re.sub(r"\x1b\[[AK]", "", self.shown[before:].decode()))
            steps = [piece for piece in pieces[:-1] if piece.startswith("step ")]
            narrow = [piece for piece in steps if len(piece) < 40]
            self.assertEqual(narrow, steps[len(steps) - len(narrow):], "a line that is too wide after one that fits")
            return len(narrow) > 5
        wait_until(redrawn, 60, "narrow lines")
        (self.folder / "go").touch()
        lines = self.end()
        self.assertIn("succeeded", "\n".join(lines))


if __name__ == "__main__":
    main()
