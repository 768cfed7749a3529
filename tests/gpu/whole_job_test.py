"""Whole jobs on two stand-in GPUs: dslaunch counts them where the driver lists them, starts a rank for each, and the ranks
train on them. The driver's list is a file system of its own over /proc/driver, which takes root or a user namespace."""

import json
import os
import pathlib
import signal
import subprocess
import sys

TESTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path[:0] = [os.path.join(TESTS, "support"), os.path.join(TESTS, "trainer")]

SKIPPED = 77  # exit code that CTest counts as skipped
INSIDE = "DSLAUNCH_TEST_FAKE_DRIVER"
GPUS = ("0000:01:00.0", "0000:02:00.0")
LIST = pathlib.Path("/proc/driver/nvidia/gpus")


def enter():
    """Runs this program again where the driver lists GPUS, and does not return."""
    make = "mount -t tmpfs none /proc/driver && mkdir -p %s" % " ".join(str(LIST / gpu) for gpu in GPUS)
    unshare = ["unshare", "--mount"] + ([] if os.geteuid() == 0 else ["--user", "--map-root-user"])
    tried = subprocess.run([*unshare, "sh", "-c", make], capture_output=True, text=True)
    if tried.returncode != 0:
        print("SKIPPED: this machine does not let a test mount its own /proc/driver: " + tried.stderr.strip())
        sys.exit(SKIPPED)
    os.environ[INSIDE] = "1"
    os.execvp(unshare[0], [*unshare, "sh", "-c", make + ' && exec "$0" "$@"', sys.executable, *sys.argv])


if __name__ == "__main__" and INSIDE not in os.environ:
    enter()

from launcher_case import LauncherCase, main  # noqa: E402
from spawn import recipe  # noqa: E402

TRAIN = ("--launcher", "local", "train", "fashion_mnist", "--seed", 7)


class WholeJob(LauncherCase):
    def losses(self, *options):
        metrics = self.folder / ("metrics%d.jsonl" % len(options))
        code, job = self.run_job(*options, *TRAIN, "--steps", 20, "--metrics_jsonl", metrics, timeout_s=120)
        self.assert_code(0, code, job)
        self.assert_presentable(job)
        self.assert_nothing_left()
        records = map(json.loads, metrics.read_text().splitlines())
        return job, [record["loss"] for record in records if "loss" in record]

    def test_a_rank_for_each_gpu(self):
        job, ours = self.losses()
        self.assert_says(job, r"1 node x 2 slots = 2 ranks", r"cuda", r"rank 0 computes on a stand-in GPU")
        _, theirs = self.losses("--num_gpus", 2, "--env", "CUDA_VISIBLE_DEVICES=")
        self.assertEqual(len(ours), len(theirs))
        for one, other in zip(ours, theirs):
            self.assertLessEqual(abs(one - other), 1e-4 * abs(other))

    def test_doctor_sees_the_gpus(self):
        code, job = self.run_job("doctor", "--launcher", "local", env={"FAKE_NVIDIA_GPUS": str(len(GPUS))})
        self.assert_code(0, code, job)
        self.assert_says(job, r"localhost +ok .*2 x NVIDIA Fake \(driver 580")

    def test_a_killed_rank_is_the_cause(self):
        job = self.start(*TRAIN, "--epochs", 1000)
        self.wait_for_output(job, r"(?i)loss", timeout_s=90)
        victim, = [process for process in self.leftovers()
                   if process.name == "dslaunch-train" and process.environ.get("RANK") == "1"]
        os.kill(victim.pid, signal.SIGKILL)
        self.assert_code(137, self.wait(job, 30), job)
        self.assert_says(job, r"rank 1\b", "SIGKILL")
        self.assert_nothing_left()

    def test_a_rank_whose_gpu_has_no_memory_left_is_the_cause(self):
        """Its exit code, 69, is also that of a rank that lost another one."""
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


if __name__ == "__main__":
    main()
