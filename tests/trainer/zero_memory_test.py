"""Tests that a rank's memory and sent bytes at each stage of ZeRO match the ZeRO paper. The memory is counted from live
tensors, and the bytes of a step by Linux. tests/bench/zero_memory prints the whole table."""

import os
import re
import statistics
import tempfile
import time
import unittest

import spawn
import zero_measure


class ZeroTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.text = os.path.join(cls.folder.name, "text")
        zero_measure.write_text(cls.text)


class ModelStates(ZeroTest):
    CASES = [(1, 2, "bf16"), (1, 4, "fp32"), (2, 2, "fp32"), (2, 4, "bf16"), (3, 1, "bf16"), (3, 2, "bf16"),
             (3, 4, "fp32")]

    def test_states_match_formulas_within_two_percent(self):
        model = zero_measure.gpt()
        for stage, ranks, accumulation in self.CASES:
            with self.subTest(stage=stage, ranks=ranks, grad_accum_dtype=accumulation):
                memory = zero_measure.measured_memory(model, self.text, stage, ranks, accumulation)
                paper = zero_measure.paper_states(model, stage, ranks, accumulation)
                slack = zero_measure.alignment(model, stage, ranks, accumulation)
                for state in zero_measure.STATES:
                    self.assertAlmostEqual(memory[state], paper[state], delta=0.02 * paper[state] + slack[state], msg=state)


class InFiles(ZeroTest):
    """Tests that states that zero_optimization offloads to nvme are not in memory: they are in files, whose pages
    Linux can reclaim."""
    def anonymous_bytes(self, **zero):
        recipe = zero_measure.recipe(zero_measure.gpt(width=512), self.text, 3, 2, steps=1_000_000)
        recipe["engine"]["zero_optimization"].update(zero)
        with spawn.Job(recipe, 2) as job:
            # Rank 0's second step follows rank 1's complete first step. Not all fast steps are reported.
            job.wait_for(lambda: re.search(r'"step":([2-9]|\d\d)', job.read(0, 2)), 120, "the first steps are done")
            return statistics.median(self.anonymous_bytes_now(job.processes[1].pid) for _ in range(15))

    def anonymous_bytes_now(self, pid):
        time.sleep(0.1)  # because temporary memory of a step varies
        with open(f"/proc/{pid}/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon:"))

    def test_offloaded_states_are_not_in_memory(self):
        disk = {"device": "nvme", "nvme_path": self.folder.name}
        saved = self.anonymous_bytes() - self.anonymous_bytes(offload_optimizer=disk, offload_param=disk)
        states = zero_measure.paper_states(zero_measure.gpt(width=512), 3, 2, "bf16")
        self.assertAlmostEqual(saved / (states["parameters"] + states["optimizer"]), 1, delta=0.1)


class Traffic(ZeroTest):
    def test_sent_bytes_match_formulas(self):
        model = zero_measure.gpt()
        for stage, ranks in ((1, 2), (2, 4), (3, 2), (3, 4)):
            with self.subTest(stage=stage, ranks=ranks):
                paper = zero_measure.paper_sent(model, stage, ranks)
                for sent in zero_measure.measured_sent(model, self.text, stage, ranks):
                    self.assertGreater(sent, 0.98 * paper)
                    self.assertLess(sent, 1.02 * paper)


if __name__ == "__main__":
    unittest.main()
