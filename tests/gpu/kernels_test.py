"""Tests the trainer's own kernels (trainer/cuda/*.cu) against LibTorch's operators in fp64.
The stand-in's kernels are LibTorch's operators, so on the stand-in the comparisons check the code that uses kernels.
Skipped without a GPU."""

import os
import random
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../trainer"))
from gpu_case import SKIPPED, is_standin, why_not  # noqa: E402
from sdk_test import library_path  # noqa: E402

PROGRAM = os.path.join(os.path.dirname(os.environ["DSLAUNCH_SDK_PROGRAM"]), "dslaunch-kernels-program")


def run(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=300,
                          env=dict(os.environ, LD_LIBRARY_PATH=library_path()))


class Kernels(unittest.TestCase):
    def test_kernels_match_fp64(self):
        seed = random.randrange(10**6)
        ended = run(str(seed))
        lines = ended.stdout.splitlines()
        print("seed %d, %d comparisons" % (seed, len(lines)), flush=True)
        bad = "\n".join(line for line in lines if "FAILED" in line)
        self.assertEqual((ended.returncode, ended.stderr, bad), (0, "", ""))
        self.assertGreater(len(lines), 100)

    def test_prints_times(self):
        if is_standin():
            self.skipTest("a stand-in's times say nothing")
        ended = run("1", "time")
        print(ended.stdout, flush=True)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))


if __name__ == "__main__":
    if why_not():
        print("SKIPPED: " + why_not())
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
