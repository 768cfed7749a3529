"""What a rank holds at each stage of ZeRO, as its live tensors are counted, and what it sends in a step, as Linux counts it,
are what the ZeRO paper says. tests/bench/zero_memory prints the whole table."""

import os
import tempfile
import unittest

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

    def test_are_within_two_percent_of_the_formulas(self):
        model = zero_measure.gpt()
        for stage, ranks, accumulation in self.CASES:
            with self.subTest(stage=stage, ranks=ranks, grad_accum_dtype=accumulation):
                memory = zero_measure.measured_memory(model, self.text, stage, ranks, accumulation)
                paper = zero_measure.paper_states(model, stage, ranks, accumulation)
                slack = zero_measure.alignment(model, stage, ranks, accumulation)
                for state in zero_measure.STATES:
                    self.assertAlmostEqual(memory[state], paper[state], delta=0.02 * paper[state] + slack[state], msg=state)


class Traffic(ZeroTest):
    def test_is_that_of_the_formulas(self):
        model = zero_measure.gpt()
        for stage, ranks in ((1, 2), (2, 4), (3, 2), (3, 4)):
            with self.subTest(stage=stage, ranks=ranks):
                paper = zero_measure.paper_sent(model, stage, ranks)
                for sent in zero_measure.measured_sent(model, self.text, stage, ranks):
                    self.assertGreater(sent, 0.98 * paper)
                    self.assertLess(sent, 1.02 * paper)


if __name__ == "__main__":
    unittest.main()
