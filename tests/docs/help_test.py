"""Tests `dslaunch help`, which shows the documentation in a terminal."""

import os
import pathlib
import pty
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from launcher_case import DSLAUNCH, LauncherCase, main  # noqa: E402


class HelpTest(LauncherCase):
    def test_list_contains_topics(self):
        code, job = self.run_job("help")
        self.assert_code(0, code, job)
        for topic in ("getting-started", "launching", "training", "options", "recipe"):
            self.assertRegex(job.stdout, rf"(?m)^  {topic} ")

    def test_page_is_plain_text(self):
        code, job = self.run_job("help", "launching")
        self.assert_code(0, code, job)
        self.assertTrue(job.stdout.startswith("Launching jobs\n==="), job.stdout[:200])
        self.assertNotIn("\x1b", job.stdout)
        for line in job.stdout.splitlines():
            if not line.startswith("    "):
                self.assertLessEqual(len(line), 100, line)

    def test_unknown_topic_is_rejected_with_suggestion(self):
        code, job = self.run_job("help", "trainign")
        self.assert_code(64, code, job)
        self.assertIn("did you mean training?", job.stderr)
        self.assertEqual("", job.stdout)

    def test_prints_help_of_command(self):
        code, job = self.run_job("help", "doctor")
        self.assert_code(0, code, job)
        self.assertTrue(job.stdout.startswith("dslaunch doctor"), job.stdout[:200])
        self.assertIn("Examples", job.stdout)


class Pager(LauncherCase):
    def test_terminal_shows_page_in_pager(self):
        for pager, shown in (("/bin/sed -u s/^/>/", b">Launching jobs"), ("", b"\nLaunching jobs"), ("no-such", b"\nLaunching jobs")):
            pid, terminal = pty.fork()
            if pid == 0:
                os.execve(DSLAUNCH, [DSLAUNCH, "help", "launching"],
                          {**self.base_environment(), "PAGER": pager, "TERM": "xterm"})
            output = b"\n"
            try:
                while piece := os.read(terminal, 1 << 16):
                    output += piece
            except OSError:  # end of the output
                pass
            os.close(terminal)
            self.assertEqual(0, os.waitpid(pid, 0)[1])
            self.assertIn(shown, output)


if __name__ == "__main__":
    main()
