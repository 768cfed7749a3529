"""Tests that dslaunch treats 30 scripts as docs/side-by-side.md describes."""

import os
import pathlib
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from launcher_case import DSLAUNCH, ROOT, LauncherCase, main  # noqa: E402
from side_by_side_scripts import LAUNCHERS, PAGE_HEAD, SCRIPTS, Launchers, cells_of, escaped  # noqa: E402

ORACLE_PYTHON = pathlib.Path(os.environ.get("DSLAUNCH_ORACLE_PYTHON", ROOT / ".deps" / "oracle" / "bin" / "python3"))


class SideBySide(LauncherCase):
    def setUp(self):
        super().setUp()
        self.page = (ROOT / "docs" / "side-by-side.md").read_text()
        self.cells = cells_of(self.page)

    def test_page_has_all_scripts_and_their_differences(self):
        self.assertTrue(self.page.startswith(PAGE_HEAD), "tests/bench/launchers writes it again")
        self.assertEqual([script.name for script in SCRIPTS], list(self.cells))
        for script in SCRIPTS:
            cells = self.cells[script.name]
            if len(set(map(self.exit_code_and_notes, cells.values()))) > 1:
                self.assertTrue(script.why, f"{script.name}: {cells}")

    @staticmethod
    def exit_code_and_notes(cell):
        return cell.partition("; shows")[0]

    def test_page_matches_results_of_dslaunch(self):
        python = ORACLE_PYTHON if ORACLE_PYTHON.exists() else pathlib.Path(sys.executable)
        launchers = Launchers(DSLAUNCH, python)
        for script in SCRIPTS:
            if script.torch and not ORACLE_PYTHON.exists():
                continue
            with self.subTest(script=script.name):
                self.assertEqual(self.cells[script.name][LAUNCHERS[-1]], escaped(launchers.run("dslaunch", script)))


if __name__ == "__main__":
    main()
