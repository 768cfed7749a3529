"""Tests that the trainer's lines for users go through one file: no other file of trainer/ prints.

Data for programs (prediction_writer's JSON lines by fwrite, the status pipe by write) are not lines for users.
"""
import pathlib
import re
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLACE = "trainer/base/log.cc"
PRINTS = re.compile(r"\b(v?f?printf|f?puts|f?putc|putchar|perror)\s*\(|\b(cout|cerr|clog)\s*<<")


def printing(root):
    """Returns "FILE:LINE" for all other code that prints."""
    found = []
    for path in sorted((root / "trainer").rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.suffix not in (".h", ".cc") or name == PLACE:
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if PRINTS.search(line.split("//")[0]):
                found.append(f"{name}:{number}")
    return found


class TrainerOutputTest(unittest.TestCase):
    def test_only_one_trainer_file_prints(self):
        self.assertEqual(printing(ROOT), [], f"use {PLACE}")

    def test_finds_a_planted_line(self):
        for line in ('std::printf("%d", 1);', 'std::cout << 1;', 'std::fputs("a", stderr);'):
            with self.subTest(line), tempfile.TemporaryDirectory() as folder:
                root = pathlib.Path(folder)
                (root / "trainer").mkdir()
                (root / "trainer/a.cc").write_text("#include <cstdio>\n" + line + "\n")
                self.assertEqual(printing(root), ["trainer/a.cc:2"])


if __name__ == "__main__":
    unittest.main()
