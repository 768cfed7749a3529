"""Rehearses the use of a GPU machine: tests/gpu/pack, and the two commands of its tree, up to the last line of their
tables.
The tree is in another folder, has the stand-in in place of the CUDA part, and uses LibTorch from the PyTorch beside
it. With DSLAUNCH_TEST_FULL=1, all tests of the tree run. Otherwise one of each kind runs."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from gpu_case import where_gpus_are_listed

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = os.environ["DSLAUNCH_ORACLE_PYTHON"]
DEEPSPEED = ROOT / ".deps" / "deepspeed" / "bin" / "python3"  # exists if packaging/fetch-deepspeed was run
FULL = os.environ.get("DSLAUNCH_TEST_FULL") == "1"
LIMIT_S = 600


class Rehearsal(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tree = cls.pack()

    @classmethod
    def pack(cls, *options):
        """Packs a tree, and returns its folder."""
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        tree = pathlib.Path(folder.name) / "tree"
        subprocess.run([sys.executable, ROOT / "tests" / "gpu" / "pack", "--standin", *options, tree], check=True, timeout=LIMIT_S)
        return tree

    def run_in_tree(self, code, *command, is_listed=False):
        """Returns the lines that a command in the tree prints.
        The command has no access to this build. It has one GPU, which the driver lists if `is_listed`."""
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("DSLAUNCH_", "TEST_", "LD_LIBRARY_PATH"))}
        environment["PATH"] = "%s:%s" % (ROOT / "tests" / "support" / "nvidia_smi", environment["PATH"])
        argv = [PYTHON, self.tree / command[0], *command[1:]]
        ended = subprocess.run(where_gpus_are_listed(1, argv) if is_listed else argv, capture_output=True, text=True,
                               timeout=LIMIT_S, cwd="/", env={**environment, "FAKE_CUDA_DEVICES": "1"})
        print(ended.stdout, flush=True)
        self.assertEqual((ended.returncode, ended.stderr), (code, ""), ended.stdout)
        return ended.stdout.splitlines()

    def test_runs_tests(self):
        lines = self.run_in_tree(0, "tests/gpu/run", *([] if FULL else ["--only", "fp16"]))
        self.assertRegex(lines[-1], r"^\d+ passed, 0 failed, \d+ skipped, 0 not run to the end, in \d+ s$")
        self.assertTrue(any("test_fp16_with_loss_scale_matches_cpu" in line and line.endswith("passed") for line in lines))

    def test_runs_tests_of_whole_jobs(self):
        if subprocess.run(where_gpus_are_listed(1, ["true"]), capture_output=True).returncode != 0:
            self.skipTest("this machine does not let a test mount its own /proc/driver")
        lines = self.run_in_tree(0, "tests/gpu/run", "--only", "WholeJob", is_listed=True)
        self.assertRegex(lines[-1], r"^3 passed, 0 failed, 2 skipped, 0 not run to the end, in \d+ s$")

    def test_lists_tests_that_ran_out_of_time(self):
        lines = self.run_in_tree(75, "tests/gpu/run", "--seconds", "3")
        self.assertRegex(lines[-1], r"[1-9]\d* not run to the end")
        self.assertTrue(any("sdk_test" in line and line.endswith("not run") for line in lines))

    def benchmark(self, rows, *arguments):
        """Returns the lines of the benchmark's table, which must have a figure for each of `rows`."""
        lines = self.run_in_tree(0, "tests/bench/gpu", "--rehearse", "--rounds", "1", *arguments)
        table = lines[next(number for number, line in enumerate(lines) if "tokens/s" in line and "MFU" in line):]
        for name in rows:
            self.assertTrue(any(line.startswith("  %-18s       1 " % name) and line.split()[-1] == "x" for line in table), table)
        return table

    def test_runs_benchmark(self):
        rows = (["dslaunch", "graph", "zero 1", "zero 2", "zero 3", "offload", "eager", "autocast", "compile"] if FULL else
                ["dslaunch", "zero 3", "eager"])
        table = self.benchmark(rows, "--steps", "20", "--batch", "2", *([] if FULL else ["--only", *rows]))
        self.assertEqual(sum("delays a step by" in line for line in table), 2, table)

    def test_runs_benchmark_of_llama(self):
        rows = ["dslaunch", "graph", "eager"] if FULL else ["dslaunch", "eager"]
        self.benchmark(rows, "--model", "llama_1b", "--steps", "20", "--batch", "2", "--only", *rows)

    def test_runs_benchmark_of_large_model(self):
        table = self.benchmark(["dslaunch"], "--large", "--only", "dslaunch")
        self.assertTrue(any(line.startswith("  states ") and ", cap " in line for line in table), table)

    @unittest.skipUnless(DEEPSPEED.exists(), "needs packaging/fetch-deepspeed")
    def test_runs_benchmark_with_deepspeed(self):
        self.tree = self.pack("--deepspeed", "%d.%d" % sys.version_info[:2])
        rows = ["offload", "deepspeed", "deepspeed offload"]
        self.benchmark(rows, "--steps", "20", "--batch", "2", "--only", *rows)
        self.benchmark(["dslaunch", "deepspeed"], "--large")


if __name__ == "__main__":
    unittest.main(verbosity=2)
