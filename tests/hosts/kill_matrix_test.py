"""Runs each cell of the kill matrix once, with short times. An ordinary user runs a part in which each pair of fault,
phase and place still occurs, and root runs the other cells. With DSLAUNCH_TEST_FULL=1, both users run every cell,
including the long ones.

`--pairwise` runs only such a part, for both users.
"""

import os
import sys
import unittest

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
import kill_matrix  # noqa: E402
from hosts_case import main  # noqa: E402

PAIRWISE = "--pairwise" in sys.argv
FULL = os.environ.get("DSLAUNCH_TEST_FULL") == "1"
HOST_GROUPS = 3


class KillMatrix(unittest.TestCase):
    def check(self, user, has_pairs):
        """Runs the pairwise part of the cells if `has_pairs`, else the other cells."""
        cells = kill_matrix.all_cells()
        if not FULL:
            part = kill_matrix.pairwise(cells)
            cells = part if has_pairs else [cell for cell in cells if cell not in part and cell.fault not in kill_matrix.LONG]
        for result in kill_matrix.run_cells(cells, user, kill_matrix.FAST, HOST_GROUPS, kill_matrix.print_result):
            with self.subTest(cell=str(result.cell)):
                self.assertEqual([], result.problems, result.output)

    def test_each_fault_has_its_listed_effect_as_root(self):
        self.check("root", has_pairs=PAIRWISE)

    def test_each_fault_has_its_listed_effect_as_user(self):
        self.check("tester", has_pairs=True)


if __name__ == "__main__":
    if PAIRWISE:
        sys.argv.remove("--pairwise")
    main()
