"""Tests TF-Replicator's way (dslaunch/replicator.h). The program itself compares the primitives with plain
arithmetic."""

import unittest

from style_program import run


class ReplicatorTest(unittest.TestCase):
    def test_primitives_and_gradients_match_arithmetic(self):
        for ranks in 1, 2, 3:
            ended = run("replicator_primitives", ranks)
            self.assertEqual((ended.returncode, ended.stderr), (0, ""), "%d ranks" % ranks)


if __name__ == "__main__":
    unittest.main()
