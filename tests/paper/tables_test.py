"""Tests papers' values for memory and bytes against dslaunch's own plans and runs: the fast part of
tests/paper/tables.
"""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import paper_tables  # noqa: E402
import zero_measure  # noqa: E402

FULL = os.environ.get("DSLAUNCH_TEST_FULL") == "1"
PEAK_WITHIN = 0.03
STEP_WITHIN = 0.05


class TablesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.text = os.path.join(folder.name, "text")
        zero_measure.write_text(cls.text)

    def test_planned_memory_matches_zero_paper_table_1(self):
        cells = None if FULL else {(7.5e9, 64, 1), (7.5e9, 1024, 2), (128e9, 64, 3), (1e12, 1024, 3)}
        for parameters, ranks, stage, planned, text in paper_tables.zero_table_1(self.text, cells):
            with self.subTest(parameters=parameters, ranks=ranks, stage=stage):
                billions = parameters / 1e9
                formula = {1: 4 + 12 / ranks, 2: 2 + 14 / ranks, 3: 16 / ranks}[stage] * billions
                self.assertLess(abs(planned - formula), 0.002 * formula)
                if text is not None:
                    self.assertTrue(paper_tables.agrees(planned, text), (planned, text))

    def test_measured_peaks_match_plan(self):
        cases = [(stage, ranks) for ranks in (2, 4, 8) for stage in (0, 1, 2, 3)] if FULL else [(0, 2), (2, 4), (3, 2)]
        for stage, ranks in cases:
            # In fp32, buckets and activations peak at different times, but the plan adds their peaks.
            for samples, accumulation, within in ((1, "bf16", PEAK_WITHIN), (8, "fp32", 2 * PEAK_WITHIN)):
                with self.subTest(stage=stage, ranks=ranks, samples=samples, grad_accum_dtype=accumulation):
                    planned, measured = paper_tables.measured_peak(self.text, stage, ranks, samples, accumulation)
                    print(f"stage {stage}, {ranks} ranks, {samples} samples, {accumulation}: {planned / measured:.4f}")
                    self.assertLess(planned - measured, within * measured, (planned, measured))
                    self.assertLess(measured - planned, PEAK_WITHIN * measured, (planned, measured))

    def test_sent_bytes_match_zero_paper_section_7(self):
        for stage, sent, formula in paper_tables.section_7(self.text):
            with self.subTest(stage=stage):
                print(f"stage {stage}: {sent} of {formula}")
                self.assertEqual(sent, formula)

    def test_one_rank_of_large_job_completes_a_step(self):
        # `tests/paper/tables --only large` does the same for 100 billion parameters and 400 ranks.
        step, planned = paper_tables.step_of_one_rank(self.text, 3, 40, width=512, inner=1024, depth=240, rank=7)
        self.assertEqual((step["steps"], step["parameters"]), (1, paper_tables.stack_parameters(512, 1024, 240)))
        self.assertGreater(step["grad_norm"], 0)
        print(f"planned {planned['together']}, measured {step['tensors']}")
        self.assertLess(abs(planned["together"] - step["tensors"]), STEP_WITHIN * step["tensors"])

    def test_one_replica_of_512_completes_a_step(self):
        step = paper_tables.one_rank("replicator", 512, 2048)
        self.assertEqual((step["replicas"], step["samples"], step["losses"]), (512, 4, 512))
        self.assertAlmostEqual(step["loss"], step["loss_alone"], delta=1e-6)
        self.assertLess(step["weights_apart"], 1e-6)


if __name__ == "__main__":
    unittest.main()
