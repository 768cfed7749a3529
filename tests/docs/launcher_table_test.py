"""Tests that the table of `tests/bench/launch --table` is complete, and the same in README.md and
docs/benchmarks.md."""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "bench"), str(ROOT / "tests" / "support")]
import launcher_table  # noqa: E402


class LauncherTableTest(unittest.TestCase):
    def test_pages_have_one_complete_table(self):
        tables = [re.findall(f"{re.escape(launcher_table.BEGIN)}\n(.*?){re.escape(launcher_table.END)}", page.read_text(),
                             re.DOTALL) for page in launcher_table.PAGES]
        self.assertEqual([1, 1], [len(found) for found in tables])
        self.assertEqual(tables[0], tables[1])
        header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in tables[0][0].splitlines()]
        self.assertEqual(launcher_table.HEADER, header)
        self.assertLessEqual({"dslaunch", "torchrun", "deepspeed", "accelerate", "mpirun", "srun"}, {row[1] for row in rows})
        for row in rows:
            self.assertEqual(len(header), len(row), row)
            self.assertNotIn("", row[1:])


if __name__ == "__main__":
    unittest.main()
