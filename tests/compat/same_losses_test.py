"""Tests that all styles and the engine train one model on one data set with the same losses and gradient norms.
The number of ranks is 1, 2 and 4. The reference is PyTorch on the whole batch."""

import os
import pathlib
import subprocess
import unittest

from style_program import run

ROOT = pathlib.Path(__file__).resolve().parents[2]
ORACLE_PYTHON = os.environ.get("DSLAUNCH_ORACLE_PYTHON") or ROOT / ".deps" / "oracle" / "bin" / "python3"
TOLERANCE = 1e-6
STYLES = ["engine", "zero1", "zero3", "server_1", "server_all", "horovod", "horovod_predivide", "horovod_groups", "replicator"]

# This is the program's model and data in Python's PyTorch.
REFERENCE = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(20, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
torch.manual_seed(1)
inputs, targets = torch.randn(20, 24, 20), torch.randint(0, 10, (20, 24))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for x, y in zip(inputs, targets):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    norm = sum(p.grad.double().square().sum() for p in model.parameters()).sqrt()
    optimizer.step()
    print("%.9g %.9g" % (loss.item(), norm.item()))
"""


def steps_of(text):
    return [[float(number) for number in line.split()] for line in text.splitlines()]


class SameLossesTest(unittest.TestCase):
    def steps(self, style, ranks):
        ended = run(style, ranks)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""), "%s of %d ranks" % (style, ranks))
        steps = steps_of(ended.stdout)
        self.assertEqual(len(steps), 20, ended.stdout)
        return steps

    def assert_same(self, steps, what, tolerance=TOLERANCE):
        for number, (own, other) in enumerate(zip(steps, self.reference, strict=True)):
            for mine, theirs in zip(own, other, strict=True):
                self.assertLessEqual(abs(mine - theirs), tolerance * max(1, abs(theirs)),
                                     "%s, step %d: %s and %s" % (what, number, own, other))

    @classmethod
    def setUpClass(cls):
        ended = subprocess.run([ORACLE_PYTHON, "-c", REFERENCE], capture_output=True, text=True, timeout=120, check=True)
        cls.reference = steps_of(ended.stdout)

    def test_every_style_matches_pytorch_on_1_2_and_4_ranks(self):
        for style in STYLES:
            for ranks in 1, 2, 4:
                self.assert_same(self.steps(style, ranks), "%s of %d ranks" % (style, ranks))

    def test_data_parallel_in_one_process_matches_pytorch(self):
        for style in "data_parallel_1", "data_parallel_3":
            self.assert_same(self.steps(style, 1), style)

    def test_compressed_gradients_stay_close(self):
        for style, tolerance in ("horovod_fp16", 5e-3), ("horovod_bf16", 4e-2):
            self.assert_same(self.steps(style, 2), style, tolerance)


if __name__ == "__main__":
    unittest.main()
