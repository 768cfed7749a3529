"""Tests whole jobs on GPUs: dslaunch counts the GPUs and starts a rank for each, and the ranks train on them.
Skipped without a GPU. With the stand-in there are two GPUs. The test's own file system over /proc/driver lists them,
which needs root or a user namespace."""

import json
import os
import signal
import subprocess
import sys

TESTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path[:0] = [os.path.join(TESTS, "support"), os.path.join(TESTS, "trainer")]

from gpu_case import SKIPPED, gpu_list, gpus, is_standin, where_gpus_are_listed, why_not  # noqa: E402

INSIDE = "DSLAUNCH_TEST_FAKE_DRIVER"
STANDINS = 2


def enter():
    """Runs this program again with a driver that lists the stand-in's GPUs. Does not return."""
    tried = subprocess.run(where_gpus_are_listed(STANDINS, ["true"]), capture_output=True, text=True)
    if tried.returncode != 0:
        print("SKIPPED: this machine does not let a test mount its own /proc/driver: " + tried.stderr.strip())
        sys.exit(SKIPPED)
    os.environ[INSIDE] = "1"
    command = where_gpus_are_listed(STANDINS, [sys.executable, *sys.argv])
    os.execvp(command[0], command)


if __name__ == "__main__":
    if why_not():
        print("SKIPPED: " + why_not())
        sys.exit(SKIPPED)
    if is_standin() and INSIDE not in os.environ:
        enter()

from launcher_case import LauncherCase, main  # noqa: E402
from spawn import recipe  # noqa: E402

TRAIN = ("--launcher", "local", "train", "fashion_mnist", "--data", os.environ["TEST_DATA"], "--seed", 7)


class WholeJob(LauncherCase):
    def setUp(self):
        super().setUp()
        if is_standin() and not gpu_list().exists():
            self.skipTest("no driver lists the stand-in's GPUs; this file by itself makes such a list")

    def losses(self, *options):
        metrics = self.folder / ("metrics%d.jsonl" % len(options))
        code, job = self.run_job(*options, *TRAIN, "--steps", 20, "--metrics_jsonl", metrics, timeout_s=120)
        self.assert_code(0, code, job)
        self.assert_presentable(job)
        self.assert_nothing_left()
        records = map(json.loads, metrics.read_text().splitlines())
        return job, [record["loss"] for record in records if "loss" in record]

    def test_starts_a_rank_for_each_gpu(self):
        job, ours = self.losses()
        self.assert_prints(job, "1 node x %d slots? = %d ranks?" % (gpus(), gpus()), r"cuda",
                           "rank 0 computes on " + ("a stand-in GPU" if is_standin() else "NVIDIA"))
        _, theirs = self.losses("--num_gpus", gpus(), "--env", "CUDA_VISIBLE_DEVICES=")
        self.assertEqual(len(ours), len(theirs))
        for one, other in zip(ours, theirs):
            self.assertLessEqual(abs(one - other), (1e-4 if is_standin() else 1e-3) * abs(other))

    def test_doctor_lists_gpus(self):
        code, job = self.run_job("doctor", "--launcher", "local", env={"FAKE_NVIDIA_GPUS": str(gpus())})
        self.assert_code(0, code, job)
        self.assert_prints(job, r"localhost +ok .*\b%d x NVIDIA .* \(driver \d" % gpus())

    def test_reports_killed_rank_as_cause(self):
        last = str(gpus() - 1)
        job = self.start(*TRAIN, "--epochs", 1000)
        self.wait_for_output(job, r"(?i)loss", timeout_s=90)
        victim, = [process for process in self.leftovers()
                   if process.name == "dslaunch-train" and process.environ.get("RANK") == last]
        os.kill(victim.pid, signal.SIGKILL)
        self.assert_code(137, self.wait(job, 30), job)
        self.assert_prints(job, r"rank %s\b" % last, "SIGKILL")
        self.assert_nothing_left()

    def test_reports_rank_out_of_gpu_memory_as_cause(self):
        """Checks exit code 69, which is also that of a rank that lost another one."""
        if not is_standin():
            self.skipTest("a GPU's memory is as large as it is")
        if gpus() < 2:
            self.skipTest("takes two GPUs")
        program, description = self.folder / "rank.sh", self.folder / "recipe.json"
        program.write_text('#!/bin/sh\n[ "$RANK" = 0 ] || export STANDIN_BYTES=400000\nexec "$@"\n')
        program.chmod(0o755)
        description.write_text(json.dumps(recipe(run={"steps": 1000, "device": "cuda"})))
        code, job = self.run_job("--launcher", "local", "--json", program, os.environ["DSLAUNCH_TRAIN"], description,
                                 timeout_s=120)
        self.assert_code(69, code, job)
        cause = json.loads(job.stdout.strip().splitlines()[-1])["cause"]
        self.assertEqual(1, cause["rank"], job.output)
        self.assertFalse(cause["victim"], job.output)
        self.assertIn("out of memory", cause["evidence"])
        self.assert_nothing_left()

    def test_tune_finds_what_fits_where_recipe_does_not(self):
        if not is_standin():
            self.skipTest("a GPU's memory is as large as it is")
        if gpus() < 2:
            self.skipTest("takes two GPUs")
        (self.folder / "corpus.txt").write_bytes(bytes(range(32, 127)) * 600)
        (self.folder / "r.json").write_text(json.dumps({
            "model": {"type": "gpt2", "vocab_size": 256, "n_positions": 64, "n_embd": 64, "n_layer": 4, "n_head": 2},
            "data": {"type": "text", "path": str(self.folder / "corpus.txt")}, "run": {"steps": 3, "device": "cuda"},
            "engine": {"train_batch_size": 32, "optimizer": {"type": "AdamW", "params": {"lr": 0.001}}}}))
        two = ("--launcher", "local", "-n", "2")
        code, job = self.run_job(*two, "train", "r.json", "--plan_memory", "--metrics_jsonl", "plan.jsonl")
        self.assert_code(0, code, job)
        plan = json.loads((self.folder / "plan.jsonl").read_text())["plan"]
        self.assertTrue(plan["on_gpu"])
        limit = {"STANDIN_BYTES": str(plan["needs"] // 2)}

        code, job = self.run_job(*two, "train", "r.json", env=limit, timeout_s=120)
        self.assert_code(69, code, job)
        self.assert_prints(job, "out of memory")
        code, job = self.run_job(*two, "tune", "r.json", "-o", "fits.yaml", "--budget", "40", "--json", env=limit,
                                 timeout_s=240)
        self.assert_code(0, code, job)
        found = json.loads(job.stdout)
        self.assertEqual("does_not_fit", found["trials"][0]["end"])
        self.assertLessEqual(found["best"]["needs_bytes"], plan["needs"] // 2)
        code, job = self.run_job(*two, "train", "fits.yaml", env=limit, timeout_s=120)
        self.assert_code(0, code, job)
        self.assert_nothing_left()


if __name__ == "__main__":
    main()
