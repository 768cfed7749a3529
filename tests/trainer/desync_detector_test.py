"""Tests that ranks that diverge report it and exit. At ZeRO stage 3, ranks need each other in every pass, so
otherwise they would wait forever."""

import os
import shutil
import tempfile
import unittest

from inputs import write_idx_part
from spawn import recipe, run

BAD_INPUT = 65
MISTAKEN_MODEL = os.environ["DSLAUNCH_MISTAKEN_MODEL"]


class DesyncDetectorTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        write_idx_part(cls.folder, {"train": 1024, "t10k": 64})

    def run_mistaken(self, params, world, **zero):
        wanted = recipe(data={"path": self.folder}, run={"steps": 2, "seed": 7}, engine={
            "train_batch_size": 24, "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0, **zero}})
        wanted["model"] = {"type": "plugin", "path": MISTAKEN_MODEL, "params": params}
        return run(wanted, world, timeout_s=60)  # far shorter than Gloo's timeout

    def check_all_say(self, ranks, *words):
        for number, rank in enumerate(ranks):
            self.assertEqual(rank.code, BAD_INPUT, rank.err)
            self.assertRegex(rank.err, r"^dslaunch-train: rank %d: the ranks run different operations .*\n$" % number)
            for word in words:
                self.assertIn(word, rank.err)

    def test_reports_rank_that_skips_a_module(self):
        # The gradient of the skipped module is zero on that rank.
        for zero in ({}, {"reduce_scatter": False}):
            with self.subTest(zero=zero):
                self.check_all_say(self.run_mistaken({"skip_step": 1, "skip_rank": 1}, 3, **zero),
                                   "ranks 0, 2: waiting for the parameters of spare",
                                   "rank 1: waiting for the gradients of spare")

    def test_reports_rank_that_skips_module_in_evaluation(self):
        self.check_all_say(self.run_mistaken({"skips_eval": 1, "skip_rank": 0}, 2),
                           "rank 0: waiting for an all-gather", "rank 1: waiting for the parameters of spare")

    def test_waits_for_slow_rank(self):
        for rank in self.run_mistaken({"sleep_step": 2, "sleep_rank": 0}, 2):
            self.assertEqual((rank.code, rank.err), (0, ""))


if __name__ == "__main__":
    unittest.main()
