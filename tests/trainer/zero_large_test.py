"""Tests that a model whose state does not fit into the memory of one rank trains at stage 3, where four ranks share
the state."""

import os
import resource
import tempfile
import unittest

from inputs import write_text
from spawn import run, run_with_metrics

# The model has 38 million parameters with 16 bytes each for AdamW in fp32, which is 600 MB.
MODEL = {"type": "gpt2", "n_layer": 12, "n_head": 8, "n_embd": 512, "n_positions": 32, "vocab_size": 256,
         "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
STATES_BYTES = 16 * 38_000_000
LIMIT_BYTES = 480 << 20  # a rank's limit for data, heap and the stacks of its threads
UNAVAILABLE = 69


class LimitedMemoryTest(unittest.TestCase):
    def setUp(self):
        self.assertLess(LIMIT_BYTES, STATES_BYTES)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.text = os.path.join(folder.name, "text.txt")
        write_text(self.text, 64 * 32 + 1)
        limits = resource.getrlimit(resource.RLIMIT_DATA)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_DATA, limits)
        resource.setrlimit(resource.RLIMIT_DATA, (LIMIT_BYTES, limits[1]))  # started processes inherit the limit

    def recipe(self, stage):
        return {"model": MODEL, "data": {"type": "text", "path": self.text, "block_size": 32},
                "run": {"steps": 3, "seed": 1},
                "engine": {"train_batch_size": 4, "optimizer": {"type": "AdamW", "params": {"lr": 0.0005}},
                           "zero_optimization": {"stage": stage, "reduce_bucket_size": 1_000_000,
                                                 "stage3_prefetch_bucket_size": 2_000_000,
                                                 "stage3_max_live_parameters": 4_000_000,
                                                 "stage3_max_reuse_distance": 0}}}

    def test_four_ranks_train_model_too_large_for_one(self):
        _, steps = run_with_metrics(self.recipe(3), 4)
        self.assertEqual(len(steps), 3)
        self.assertLess(steps[-1]["loss"], steps[0]["loss"])

    def test_reports_out_of_memory_at_stage_0(self):
        rank, = run(self.recipe(0), 1)
        self.assertEqual(rank.code, UNAVAILABLE, rank.err)
        self.assertRegex(rank.err, r"^dslaunch-train: rank 0: out of memory: [^\n]*--plan_memory[^\n]*\n$")


if __name__ == "__main__":
    unittest.main()
