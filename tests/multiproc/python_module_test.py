"""Tests `import dslaunch`: reports to the launcher, stop requests, and that it has no effect outside of a job."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from launcher_case import BUILD, ROOT, TWO_BY_TWO, LauncherCase, main  # noqa: E402
from test_hosts import wait_until  # noqa: E402

MODULE = ROOT / "python"
EXAMPLES = ROOT / "examples" / "python"
ORACLE = os.environ.get("DSLAUNCH_ORACLE_PYTHON") or str(ROOT / ".deps/oracle/bin/python3")
HAS_TORCH = os.access(ORACLE, os.X_OK)

LOOP = """
import sys, time
import dslaunch
job = dslaunch.current_job()
print("rank", job.rank, "of", job.world_size, "attempt", job.attempt, flush=True)
reporter = dslaunch.Reporter()
reporter.ready()
for step in range(1, 1001):
    time.sleep(0.01)
    reporter.step(step, total_steps=1000, loss=1 / step, samples_per_s=64.0, lr=0.1)
    if dslaunch.stop_requested():
        print("saved at step", step, flush=True)
        dslaunch.exit_saved()
    if len(sys.argv) > 1 and step == int(sys.argv[1]):
        if job.rank == 0: reporter.evaluated(step, accuracy=0.75, loss=float("nan"))
        break
"""


class PythonModule(LauncherCase):
    def program(self, text):
        path = self.folder / "program.py"
        path.write_text(text)
        return path

    def start_python(self, python, *arguments, ranks=TWO_BY_TWO, options=()):
        return self.start(ranks, *options, "--log_dir", self.folder / "logs", "--env", f"PYTHONPATH={MODULE}",
                          python, *arguments)

    def metrics(self, rank):
        path, = (self.folder / "logs").rglob(f"rank_{rank}/metrics.jsonl")
        return [json.loads(line) for line in path.read_text().splitlines()]

    def wait_for_metrics(self, timeout_s):
        """Waits until a rank has written a line."""
        wait_until(lambda: any(path.stat().st_size for path in (self.folder / "logs").rglob("metrics.jsonl")), timeout_s,
                   "no metrics", poll_s=0.1)

    def test_has_no_effect_outside_of_a_job(self):
        text = """
import os, signal
import dslaunch
before = set(os.listdir("/proc/self/fd"))
reporter = dslaunch.Reporter()
reporter.ready(); reporter.step(1, total_steps=2, loss=1.0); reporter.evaluated(1, accuracy=1.0)
assert dslaunch.current_job() is None and not dslaunch.stop_requested()
assert set(os.listdir("/proc/self/fd")) == before and not os.listdir(".")
assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
"""
        folder = self.folder / "empty"
        folder.mkdir()
        subprocess.run([sys.executable, "-c", text], check=True, cwd=folder, timeout=60,
                       env={"PYTHONPATH": str(MODULE), "DSLAUNCH_JOB_ID": ""})

    def test_python_m_dslaunch_runs_its_own_interpreter(self):
        python = self.folder / "python3"
        python.symlink_to(os.path.realpath(sys.executable))
        env = {**self.base_environment(), "PYTHONPATH": str(MODULE), "PATH": f"{BUILD}/bin:/usr/bin:/bin",
               "XDG_STATE_HOME": str(self.folder / "state")}
        program = self.program("import sys; print('by', sys.executable)")
        command = [python, "-m", "dslaunch", "--launcher", "local", "--num_gpus", "1", program]
        ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
        self.assertEqual(0, ended.returncode, ended.stderr)
        self.assertIn(f"by {python}", ended.stdout)
        ended = subprocess.run([*command[:3], "--version"], env={**env, "PATH": "/no/such"}, capture_output=True, text=True, timeout=60)
        self.assertEqual(1, ended.returncode)
        self.assertIn("neither installed with this package nor in PATH", ended.stderr)

    def test_reports_progress_metrics_and_result(self):
        job = self.start_python(sys.executable, self.program(LOOP), "40", options=["--json", "--show", "all"])
        self.assert_code(0, self.wait(job), job)
        for rank in range(4):
            self.assertIn(f"rank {rank} of 4 attempt 1", job.stdout)
            lines = [line for line in self.metrics(rank) if "eval" not in line]
            self.assertTrue(lines)
            self.assertLessEqual(len(lines), 20, "at most ten a second")
            self.assertEqual(1, lines[-1]["attempt"])
            self.assertEqual(0.1, lines[-1]["lr"])
            self.assertGreater(lines[-1]["step_s"], 0.009)
            self.assertEqual(lines[-1]["step"], sum(line["steps"] for line in lines))
        self.assertEqual({"loss": None, "accuracy": 0.75}, self.metrics(0)[-1]["eval"])
        end = json.loads(job.stdout.splitlines()[-1])
        self.assertEqual(0.75, end["result"]["accuracy"])

    def test_stop_request_lets_program_save(self):
        job = self.start_python(sys.executable, self.program(LOOP), options=["--show", "all"])
        self.wait_for_output(job, "of 4 attempt 1", 4)
        time.sleep(0.3)
        job.signal(15)
        self.assert_code(85, self.wait(job), job)
        self.assertEqual(4, job.stdout.count("saved at step"))
        self.assert_nothing_left()

    def test_torch_loop_resumes_from_its_checkpoint(self):
        if not HAS_TORCH:
            self.skipTest("no PyTorch: set DSLAUNCH_ORACLE_PYTHON")
        checkpoint = self.folder / "mlp.pt"
        loop = [ORACLE, EXAMPLES / "train.py", "--checkpoint", checkpoint, "--steps"]
        two = ["--launcher", "local", "--num_nodes", "2", "--num_gpus", "1"]  # importing PyTorch takes long
        job = self.start_python(*loop, "1000000", ranks=two, options=["--show", "all"])
        self.wait_for_output(job, "begins after step 0, attempt 1", 2, timeout_s=90)
        self.wait_for_metrics(60)
        job.signal(15)
        self.assert_code(85, self.wait(job), job)
        stopped_at = self.metrics(0)[-1]["step"]
        self.assertTrue(checkpoint.exists())
        again = self.start(two, "--show", "0", "--json", "--env", f"PYTHONPATH={MODULE}", *loop, str(stopped_at + 200))
        self.assert_code(0, self.wait(again, 120), again)
        self.assertRegex(again.stdout, r"rank 0 begins after step [1-9]\d*, attempt 1")
        self.assertIn("loss", json.loads(again.stdout.splitlines()[-1])["result"])

    def test_callback_of_transformers_saves_and_resumes(self):
        if not HAS_TORCH:
            self.skipTest("no PyTorch: set DSLAUNCH_ORACLE_PYTHON")
        if subprocess.run([ORACLE, "-c", "import transformers, accelerate"], capture_output=True, timeout=120).returncode:
            self.skipTest("transformers' Trainer needs accelerate; run packaging/fetch-oracle")
        output = self.folder / "output"

        def train(steps):
            return self.start("--launcher", "local", "--num_nodes", "1", "--num_gpus", "1", "--grace", "100", "--json", "--log_dir",
                              self.folder / "logs", "--env", f"PYTHONPATH={MODULE}", ORACLE,
                              EXAMPLES / "transformers_callback.py", output, steps)

        job = train(1000000)
        self.wait_for_metrics(150)
        job.signal(15)
        self.assert_code(85, self.wait(job, 150), job)
        stopped_at = self.metrics(0)[-1]["step"]
        saved, = output.iterdir()
        self.assertGreaterEqual(int(saved.name.removeprefix("checkpoint-")), stopped_at)
        self.assertTrue((saved / "model.safetensors").exists())
        shutil.rmtree(self.folder / "logs")

        last = int(saved.name.removeprefix("checkpoint-")) + 20
        job = train(last)
        self.assert_code(0, self.wait(job, 150), job)
        result = json.loads(job.stdout.splitlines()[-1])["result"]
        steps = [line["step"] for line in self.metrics(0) if "eval" not in line]
        self.assertGreater(steps[0], last - 20)
        self.assertEqual(last, steps[-1])
        page = self.folder / "page.html"
        self.assert_code(0, *self.run_job("report", "last", "-o", page))
        self.assertIn(f"{result['loss']:.4g}", page.read_text())


if __name__ == "__main__":
    main()
