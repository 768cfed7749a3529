"""Tests that programs built on the SDK compute the same on GPUs as on CPUs. Skipped without a GPU."""

import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../trainer"))
from gpu_case import SKIPPED, gpus, why_not  # noqa: E402
from spawn import environment, held_port  # noqa: E402

PROGRAM = os.environ["DSLAUNCH_SDK_PROGRAM"]
UNAVAILABLE = 69


def library_path():
    # The program's run path does not contain the plugin, unlike the run path of an installed program.
    folder = os.path.join(os.path.dirname(os.environ["DSLAUNCH_TRAIN"]), "../lib/dslaunch")
    return ":".join(filter(None, [os.environ.get("LD_LIBRARY_PATH", ""), os.path.realpath(folder)]))


def run(device, mode, ranks):
    return subprocess.run([PROGRAM, device, mode, str(ranks)], capture_output=True, text=True, timeout=120,
                          env=dict(os.environ, LD_LIBRARY_PATH=library_path()))


def run_on_two_nodes(device):
    """Runs two ranks as a launcher does on two nodes. Returns (exit code, stdout, stderr) of each rank."""
    holder, port = held_port()
    with holder:
        ranks = [subprocess.Popen([PROGRAM, device, "whole", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  env=dict(environment(rank, 2, 1, port), LD_LIBRARY_PATH=library_path(),
                                           CUDA_VISIBLE_DEVICES=str(rank) if device == "cuda" else "")) for rank in range(2)]
        try:
            ends = [rank.communicate(timeout=120) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
    return [(rank.returncode, *end) for rank, end in zip(ranks, ends, strict=True)]


class Sdk(unittest.TestCase):
    def losses(self, device, mode, ranks):
        ended = run(device, mode, ranks)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        first, *lines = ended.stdout.splitlines()
        self.assertEqual(first, "on cpu" if device == "cpu" else "on cuda:0")
        self.assertEqual(len(lines), 6)
        return [float(line.split()[1]) for line in lines]

    def test_matches_cpu(self):
        for mode in ("whole", "pipeline"):
            with self.subTest(mode):
                ranks = min(2, gpus())
                theirs = self.losses("cpu", mode, ranks)
                for ours in (self.losses("auto", mode, ranks), self.losses("cuda", mode, ranks)):
                    for a, b in zip(ours, theirs, strict=True):
                        self.assertLessEqual(abs(a - b), 1e-4 * b, (ours, theirs))

    def test_rejects_libtorch_used_before_the_group(self):
        ended = run("cuda", "early", 1)
        self.assertEqual(ended.returncode, UNAVAILABLE, ended.stderr)
        self.assertIn("call dslaunch::InitProcessGroup before anything else of LibTorch", ended.stderr)

    def test_warns_that_nccl_does_not_encrypt(self):
        if gpus() < 2:
            self.skipTest("takes two GPUs")
        said = "NCCL exchanges between nodes in clear text; see SECURITY.md\n"
        for device, lines in (("cuda", said), ("cpu", "")):
            with self.subTest(device):
                (first_code, _, first), (second_code, _, second) = run_on_two_nodes(device)
                self.assertEqual((first_code, first, second_code, second), (0, lines, 0, ""))

    def test_rejects_more_ranks_than_gpus(self):
        ended = run("cuda", "whole", gpus() + 1)
        self.assertEqual(ended.returncode, UNAVAILABLE, ended.stderr)
        self.assertIn("local rank %d has no GPU" % gpus(), ended.stderr)

    def test_rejects_unknown_device(self):
        ended = run("tpu", "whole", 1)
        self.assertNotEqual(ended.returncode, 0)
        self.assertIn('the device is "tpu"; it must be auto, cuda or cpu', ended.stderr)


if __name__ == "__main__":
    if why_not():
        print("SKIPPED: " + why_not())
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
