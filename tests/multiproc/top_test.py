"""Tests dslaunch top in a terminal of tmux at several sizes, as text, and as JSON."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from launcher_case import DSLAUNCH, MARK, ROOT, LauncherCase, main  # noqa: E402
from test_hosts import wait_until  # noqa: E402

FAKE_NVIDIA_SMI = ROOT / "tests" / "support" / "nvidia_smi"
TWO_NODES = ["--launcher", "local", "--num_nodes", "2", "--num_gpus", "2"]

# Reports a step every 50 ms until the file "end" exists, and prints a line that would clear the terminal. Rank 3 works
# longer than the other ranks, which wait for it.
TRAINER = r"""
import json, os, pathlib, sys, time
rank = int(os.environ["RANK"])
memory = bytearray(50 << 20)
memory[::4096] = b"x" * len(memory[::4096])
status = os.fdopen(int(os.environ["DSLAUNCH_STATUS_FD"]), "w", buffering=1)
print("\x1b[2J\x1b]0;title\x07line of rank %d" % rank, flush=True)
step = 0
while not pathlib.Path("end").exists():
    time.sleep(0.05)
    step += 1
    print(json.dumps({"event": "step", "step": step, "total_steps": 100000, "loss": 2.5, "samples_per_s": 640,
                      "compute_s": 0.045 if rank == 3 else 0.02}), file=status)
"""


class Tmux:
    """A terminal of tmux that shows one program."""

    def __init__(self, case, columns, rows, environment, *argv):
        self.command = ["tmux", "-L", case.mark, "-f", "/dev/null"]
        session = [*self.command, "new-session", "-d", "-x", str(columns), "-y", str(rows), "env", "-i",
                   *[f"{name}={value}" for name, value in environment.items()],
                   "sh", "-c", '"$@"; echo "exit code $?"; sleep 1000', "sh", *argv]
        case.addCleanup(subprocess.run, [*self.command, "kill-server"], stderr=subprocess.DEVNULL, check=False)
        # The server of tmux 3.3a sometimes exits while it starts ("server exited unexpectedly"), so this is repeated.
        for _ in range(5):
            started = subprocess.run(session, capture_output=True, text=True, check=False)
            if started.returncode == 0:
                return
            time.sleep(0.2)
        case.fail("tmux does not start: " + started.stderr)

    def run(self, *words):
        return subprocess.run([*self.command, *map(str, words)], capture_output=True, text=True, check=True).stdout

    def screen(self):
        return self.run("capture-pane", "-p")

    def press(self, *keys):
        self.run("send-keys", *keys)

    def resize(self, columns, rows):
        self.run("resize-window", "-x", columns, "-y", rows)


@unittest.skipUnless(shutil.which("tmux"), "needs tmux")
class TopTest(LauncherCase):
    def start_job(self, *options, env=None):
        (self.folder / "trainer.py").write_text(TRAINER, encoding="utf-8")
        (self.folder / "bin").mkdir()
        (self.folder / "bin" / "nvidia-smi").symlink_to(FAKE_NVIDIA_SMI / "nvidia-smi")
        path = f"{self.folder}/bin:{os.environ['PATH']}"
        job = self.start(*TWO_NODES, *options, "--show", "none", "trainer.py",
                         env={"PATH": path, "FAKE_NVIDIA_GPUS": "4", **(env or {})})
        self.addCleanup(job.process.wait)
        self.addCleanup(job.process.kill)
        wait_until(lambda: "running" in self.top("last", "--once")[1], 40)
        return job

    def top(self, *arguments, env=None):
        """Runs dslaunch top; returns (exit code, output)."""
        done = subprocess.run([DSLAUNCH, "top", *arguments], capture_output=True, text=True, timeout=60,
                              stdin=subprocess.DEVNULL, cwd=self.folder, check=False,
                              env={**self.base_environment(), MARK: self.mark, **(env or {})})
        return done.returncode, done.stdout + done.stderr

    def look(self, columns=80, rows=24, env=None):
        environment = {**self.base_environment(), MARK: self.mark, "TERM": "screen", "LC_ALL": "C.UTF-8", **(env or {})}
        return Tmux(self, columns, rows, environment, DSLAUNCH, "top", "last")

    def wait_for_screen(self, tmux, *texts, within_s=30):
        try:
            wait_until(lambda: all(text in tmux.screen() for text in texts), within_s)
        except TimeoutError:
            self.fail(f"{texts} are not all on the screen:\n{tmux.screen()}")
        return tmux.screen()

    def assert_whole_screen(self, screen, columns, rows):
        lines = screen.splitlines()
        self.assertEqual(rows, len(lines))
        self.assertTrue(all(len(line) <= columns for line in lines), screen)
        self.assertRegex(lines[0], r"^job \S+  running  2 nodes, 4 ranks")
        self.assertIn("s/step", screen)
        self.assertIn("q quit", lines[-1])
        self.assertEqual(1, screen.count("node, ranks"), screen)

    def test_screen_fits_terminal_that_is_resized(self):
        self.start_job()
        tmux = self.look()
        self.assert_whole_screen(self.wait_for_screen(tmux, "line of rank 0", "cores", "0/s"), 80, 24)
        for columns, rows in ((132, 43), (60, 15), (80, 24)):
            tmux.resize(columns, rows)
            wait_until(lambda size=(columns, rows): "q quit" in tmux.screen().splitlines()[-1] and
                       len(tmux.screen().splitlines()) == size[1], 10)
            time.sleep(0.5)
            self.assert_whole_screen(tmux.screen(), columns, rows)
        tmux.press("q")
        self.wait_for_screen(tmux, "exit code 0")

    def test_slow_rank_is_named(self):
        self.start_job()
        tmux = self.look(100)
        self.wait_for_screen(tmux, "! rank 3 (", "own work 0.045 s a step, median 0.02 s")

    def test_keys_show_stacks_output_and_help(self):
        self.start_job()
        tmux = self.look()
        self.wait_for_screen(tmux, "line of rank 0")
        tmux.press("s")
        self.wait_for_screen(tmux, "stacks of the row's ranks", "trainer.py")
        tmux.press("q")
        self.wait_for_screen(tmux, "q quit")
        tmux.press("l")
        screen = self.wait_for_screen(tmux, "output of rank 0", "line of rank 0")
        self.assertNotIn("line of rank 1", screen)
        tmux.press("Escape")
        self.wait_for_screen(tmux, "q quit")
        tmux.press("h")
        self.wait_for_screen(tmux, "A row with ! stands out")
        tmux.press("q")
        self.wait_for_screen(tmux, "q quit")
        tmux.press("Enter")
        self.wait_for_screen(tmux, "  rank 0 ", "  rank 1 ")

    def test_key_stops_job_after_confirmation(self):
        job = self.start_job()
        tmux = self.look()
        self.wait_for_screen(tmux, "line of rank 0")
        tmux.press("x")
        self.wait_for_screen(tmux, "Stop the job on 2 nodes?")
        tmux.press("n")
        self.wait_for_screen(tmux, "q quit")
        self.assertTrue(job.running())
        tmux.press("x")
        self.wait_for_screen(tmux, "Stop the job")
        tmux.press("y")
        self.assert_code(143, self.wait(job), job)
        self.wait_for_screen(tmux, "has ended", "exit code 0")

    def test_view_of_detached_job_ends_with_it(self):
        self.start_job("--detach")
        tmux = self.look()
        self.wait_for_screen(tmux, "line of rank 0")
        (self.folder / "end").touch()
        self.wait_for_screen(tmux, "has ended", "exit code 0")
        self.assertEqual(0, subprocess.run([*tmux.command, "kill-server"], check=False).returncode)
        self.assert_nothing_left()

    def test_stop_key_ends_detached_job(self):
        self.start_job("--detach")
        tmux = self.look()
        self.wait_for_screen(tmux, "line of rank 0")
        tmux.press("x")
        self.wait_for_screen(tmux, "Stop the job")
        tmux.press("y")
        self.wait_for_screen(tmux, "has ended", "exit code 0")

    def nvidia_smis(self):
        """Returns the shells of the fake nvidia-smi, without their children that only sleep."""
        def is_one(process):
            try:
                return b"--loop-ms" in pathlib.Path(f"/proc/{process.pid}/cmdline").read_bytes()
            except OSError:
                return False
        return [process for process in self.leftovers() if is_one(process)]

    def test_nvidia_smi_runs_only_while_job_is_viewed(self):
        self.start_job()
        tmux = self.look()
        wait_until(lambda: len(self.nvidia_smis()) == 2, 20)  # one entry per node
        tmux.press("q")
        wait_until(lambda: not self.nvidia_smis(), 20)
        tmux.run("kill-server")
        tmux = self.look()
        wait_until(lambda: len(self.nvidia_smis()) == 2, 20)
        for agent in {process.ppid for process in self.nvidia_smis()}:
            os.kill(agent, signal.SIGKILL)
        wait_until(lambda: not self.nvidia_smis(), 20)

    def test_json_agrees_with_proc(self):
        self.start_job()
        code, text = self.top("last", "--json")
        self.assertEqual(0, code, text)
        state = json.loads(text)
        self.assertEqual(("running", 4, False), (state["state"], state["world_size"], state["stalled"]))
        self.assertEqual(["rank", "node", "why"], list(state["outliers"][0]))
        self.assertEqual(2, len(state["nodes"]))
        self.assertEqual([400.5, 401.5, 402.5, 403.5], [gpu["power_w"] for gpu in state["nodes"][0]["gpus"]])
        ranks = [rank for node in state["nodes"] for rank in node["ranks"]]
        self.assertEqual([0, 1, 2, 3], [rank["rank"] for rank in ranks])
        for process in self.leftovers():
            environ = pathlib.Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
            rank = next((int(word[5:]) for word in environ if word.startswith(b"RANK=")), None)
            if rank is None:
                continue
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
            resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) << 10
            self.assertAlmostEqual(resident, ranks[rank]["memory_bytes"], delta=resident / 10)
        self.assertEqual("line of rank 2", ranks[2]["last_line"])
        self.assertGreater(ranks[2]["step"], 10)
        self.assertLess(ranks[2]["cpu_cores"], 0.9)

    def test_refuses_terminal_that_cannot_draw(self):
        self.start_job()
        code, text = self.top("last")
        self.assertEqual(64, code)
        self.assertIn("stdin or stdout is none; dslaunch top JOB --once", text)
        for term, why in (("dumb", "cannot draw a screen"), ("no-such-terminal", "is not in this machine's terminfo")):
            tmux = self.look(120, env={"TERM": term})
            self.wait_for_screen(tmux, why, "--once", "exit code 64")
            tmux.run("kill-server")

    def test_draws_for_type_missing_in_terminfo(self):
        self.start_job()
        tmux = self.look(100, env={"TERM": "xterm-no-such"})
        self.assert_whole_screen(self.wait_for_screen(tmux, "line of rank 0", "! rank 3 (", "0/s"), 100, 24)
        tmux.press("Down")
        tmux.press("h")
        self.wait_for_screen(tmux, "sort by rank, step")

    def test_built_in_terminal_type_is_compiled_from_its_source(self):
        source = ROOT / "tests/unit/cli/top/like_xterm.ti"
        subprocess.run(["tic", "-o", self.folder, source], check=True)
        compiled = subprocess.run(["infocmp", "-A", self.folder, "-Q2", "xterm"], check=True, capture_output=True, text=True)
        compiled = "".join(line for line in compiled.stdout.splitlines() if not line.startswith("#"))
        code = (ROOT / "cli/top/terminal_type.cc").read_text()
        constant = re.search(r"kLikeXterm\[\] =(.*?);", code, re.DOTALL)[1]
        self.assertEqual(compiled, "".join(re.findall(r'"(.*)"', constant)))

    def test_draws_without_colors(self):
        self.start_job()
        for env in ({"NO_COLOR": "1"}, {"TERM": "vt100"}):
            tmux = self.look(100, env=env)
            self.wait_for_screen(tmux, "! rank 3 (")
            self.assertNotRegex(tmux.run("capture-pane", "-p", "-e"), "\x1b\\[[0-9;]*3[0-7]m")
            tmux.run("kill-server")

    def test_names_job_that_does_not_run(self):
        code, text = self.top("no-such-job")
        self.assertEqual(64, code, text)
        self.start_job()
        (self.folder / "end").touch()
        self.wait(self.last_job)
        code, text = self.top("last", "--once")
        self.assertIn("has ended with exit code 0", text)
        self.assertEqual(0, code)


if __name__ == "__main__":
    main()
