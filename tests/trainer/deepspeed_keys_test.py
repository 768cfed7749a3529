"""Compares the stored list of DeepSpeed's keys (tests/unit/trainer/config/deepspeed_keys.json) with the installed
DeepSpeed."""

import json
import os
import pathlib
import subprocess
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
KEPT = ROOT / "tests" / "unit" / "trainer" / "config" / "deepspeed_keys.json"
PYTHON = pathlib.Path(os.environ.get("DSLAUNCH_DEEPSPEED_PYTHON", ROOT / ".deps" / "deepspeed" / "bin" / "python3"))


class DeepSpeedKeysTest(unittest.TestCase):
    def test_version_matches_fetch_script(self):
        version = json.loads(KEPT.read_text())["deepspeed"]
        self.assertIn(f"\nversion={version}\n", (ROOT / "packaging" / "fetch-deepspeed").read_text())

    @unittest.skipUnless(PYTHON.exists(), f"{PYTHON} does not exist; packaging/fetch-deepspeed makes it")
    def test_list_matches_keys_that_readers_request(self):
        run = subprocess.run([PYTHON, HERE / "deepspeed_keys.py"], env={**os.environ, "DS_ACCELERATOR": "cpu"},
                             capture_output=True, text=True, timeout=120)
        self.assertEqual(0, run.returncode, run.stderr)
        self.assertEqual(json.loads(KEPT.read_text()), json.loads(run.stdout),
                         f"run {PYTHON} {HERE / 'deepspeed_keys.py'} > {KEPT}, and teach trainer/config the difference")


if __name__ == "__main__":
    unittest.main()
