"""The kill matrix with short times: every cell for root, and for an ordinary user a part in which each pair of fault, phase
and place still occurs. With DSLAUNCH_TEST_FULL=1 every cell for both, also the long ones.

`--pairwise` runs only such a part for root too.
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
    def check(self, user, pairwise):
        cells = [cell for cell in kill_matrix.all_cells() if FULL or cell.fault not in kill_matrix.LONG]
        results = kill_matrix.run_cells(kill_matrix.pairwise(cells) if pairwise else cells, user, kill_matrix.FAST,
                                        HOST_GROUPS, kill_matrix.tell)
        for result in results:
            with self.subTest(cell=str(result.cell)):
                self.assertEqual([], result.problems, result.output)

    def test_as_root_with_cgroups(self):
        self.check("root", PAIRWISE)

    def test_as_a_user_without_cgroups(self):
        self.check("tester", PAIRWISE or not FULL)


if __name__ == "__main__":
    if PAIRWISE:
        sys.argv.remove("--pairwise")
    main()
