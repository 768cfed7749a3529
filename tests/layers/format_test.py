"""Tests that every C++ file is formatted by clang-format 14 (.clang-format at the root)."""
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("base", "proto", "net", "hostfiles", "rendezvous", "agent", "cli", "trainer", "tests", "examples", "packaging")
VERSION = "14"  # other versions break lines differently
NOT_RUN = 77


def clang_format():
    """Returns the program's path, or None if that version is not installed."""
    for name in (f"clang-format-{VERSION}", "clang-format"):
        if path := shutil.which(name):
            text = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10).stdout
            if (match := re.search(r"version (\d+)\.", text)) and match[1] == VERSION:
                return path
    return None


class FormatTest(unittest.TestCase):
    def test_every_file_is_formatted(self):
        files = sorted(str(path.relative_to(ROOT)) for folder in FOLDERS for path in (ROOT / folder).rglob("*")
                       if path.suffix in (".h", ".cc"))
        self.assertGreater(len(files), 500)
        run = subprocess.run([clang_format(), "--dry-run", "-Werror", "--ferror-limit=1", *files], cwd=ROOT,
                             capture_output=True, text=True, timeout=300)
        wrong = sorted(set(re.findall(r"^(\S+?):\d+:\d+: error", run.stderr, re.M)))
        self.assertEqual([], wrong, f"clang-format -i {' '.join(wrong)}")


if __name__ == "__main__":
    if clang_format() is None:
        print(f"clang-format {VERSION} is not installed (Debian 12: apt-get install clang-format)")
        sys.exit(NOT_RUN)
    unittest.main()
