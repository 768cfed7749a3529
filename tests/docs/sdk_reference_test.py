"""Tests that doxygen generates the reference of the SDK from the headers without a warning, and that the reference
contains their comments."""

import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@unittest.skipUnless(shutil.which("doxygen"), "there is no doxygen; packaging/install-debian-packages --tests installs it")
class SdkReference(unittest.TestCase):
    def test_reference_contains_header_comments(self):
        with tempfile.TemporaryDirectory() as folder:
            options = (ROOT / "packaging" / "Doxyfile").read_text() + f"OUTPUT_DIRECTORY = {folder}\n"
            done = subprocess.run(["doxygen", "-"], input=options, cwd=ROOT, capture_output=True, text=True, timeout=100)
            self.assertEqual(0, done.returncode, done.stderr)
            pages = {path.name: re.sub(r"<[^>]*>", "", path.read_text())
                     for path in pathlib.Path(folder, "sdk-reference").glob("*.html")}
        self.assertIn("Handles the tasks of a training program", pages["program_8h.html"])
        self.assertRegex(pages["namespacedslaunch.html"], r"(?s)StopRequested.*Collective: all ranks get the same answer")
        self.assertIn("Forwards at most ten steps per second", pages["classdslaunch_1_1Reporter.html"])
        members = pages["structdslaunch_1_1Reporter_1_1Progress.html"]
        self.assertIn("summed over all ranks", members, "the comment behind a member is its own")
        self.assertNotRegex("".join(pages), "detail", "internals are no part of the reference")
        for header in (ROOT / "trainer" / "include" / "dslaunch").glob("*.h"):
            self.assertIn(header.stem.replace("_", "__") + "_8h.html", pages)


if __name__ == "__main__":
    unittest.main()
