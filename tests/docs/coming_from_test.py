"""Tests docs/coming-from.md: the page has a row for every difference found by the side-by-side tests, and names
every refused flag."""

import pathlib
import re
import sys
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
for folder in ("support", "multiproc", "hosts"):
    sys.path.insert(0, str(TESTS / folder))
import drop_in_flags_test  # noqa: E402
import drop_in_test  # noqa: E402
from side_by_side_scripts import cells_of  # noqa: E402

DOCS = TESTS.parent / "docs"
# Maps each script of docs/side-by-side.md with which dslaunch differs from torchrun or deepspeed to its row of the
# page.
ROWS = {
    "rank 1 exits with 3": "exit code",
    "rank 1 crashes (SIGSEGV)": "exit code",
    "rank 1 is killed (SIGKILL)": "exit code",
    "rank 1 aborts": "exit code",
    "rank 1 fails after rank 0 is ready": "exit code",
    "rank 1 fails, rank 0 saves on SIGTERM": "exit code",
    "rank 1 fails, rank 0 ignores SIGTERM": "exit code",
    "a process that a rank leaves behind": "a process that a rank leaves behind",
    "Ctrl-C": "Ctrl-C",
    "SIGTERM": "SIGTERM, SIGHUP, SIGXCPU to the launcher",
    "SIGHUP": "SIGTERM, SIGHUP, SIGXCPU to the launcher",
    "SIGUSR1": "SIGUSR1, SIGUSR2 to the launcher",
    "SIGKILL": "the launcher is killed (SIGKILL), or its machine is lost",
    "Ctrl-C, ranks that save and exit with 85": "a run that saved and stopped on request",
    "nohup and SIGHUP": "nohup",
    "stdin": "stdin of the ranks",
    "stdin, without an option": "stdin of the ranks",
    "RANK, LOCAL_RANK, WORLD_SIZE": "variables of the ranks",
    "OMP_NUM_THREADS": "OMP_NUM_THREADS",
    "--local_rank": "--local_rank=N for scripts",
    "run as a module": "--local_rank=N for scripts",
}
# torchrun and deepspeed set these variables for themselves, as PyTorch programs, and ranks inherit them.
NOT_FOR_RANKS = {"TORCHELASTIC_SIGNALS_TO_HANDLE", "TORCHINDUCTOR_CACHE_DIR", "PYTORCH_NVML_BASED_CUDA_CHECK"}
# drop_in_flags_test refuses these flags for other reasons than a missing feature: they contradict each other, or are
# misspelt for both.
BAD_FOR_BOTH = {"-i", "--include", "--module", "--nnodes", "--launhcer", "--log", "--rdzv-endpoint"}


def outcome(cell):
    return cell.partition("; shows")[0]


class ComingFrom(unittest.TestCase):
    def setUp(self):
        self.page = (DOCS / "coming-from.md").read_text()
        table = self.page.partition("## What differs")[2].partition("\n## ")[0]
        self.rows = [line.split(" | ")[0].removeprefix("| ").replace("`", "") for line in table.splitlines() if line.startswith("| ")]

    def test_every_difference_has_a_row(self):
        different = []
        for name, cells in cells_of((DOCS / "side-by-side.md").read_text()).items():
            if any(outcome(cells[tool]) != outcome(cells["dslaunch"]) for tool in ("torchrun", "deepspeed")):
                different.append(name)
                self.assertIn(ROWS.get(name), self.rows, f"{name}: {cells}")
        self.assertGreater(len(different), 15)

    def test_lists_every_refused_flag(self):
        words = self.page.replace("-", "_")
        for arguments, _ in drop_in_flags_test.REFUSED:
            flag, _, value = arguments[0].partition("=")
            if flag in BAD_FOR_BOTH:
                continue
            flag = {"-t": "--tee"}.get(flag, flag)
            with self.subTest(flag=flag, value=value):
                self.assertTrue(re.search("`" + re.escape(flag.replace("-", "_")) + r"\b", words), f"{flag} is not named")

    def test_lists_every_variable_that_differs(self):
        for name in sorted(drop_in_test.AgainstTheTools.OWN - NOT_FOR_RANKS):
            with self.subTest(variable=name):
                self.assertTrue(re.search(rf"`{name}[`=]", self.page), f"{name} is not named")


if __name__ == "__main__":
    unittest.main(verbosity=2)
