"""Tests a wheel as pip installs it: launcher and module work, and the trainer uses the environment's torch or reports
the problem.

Usage: python3 tests/packaging/wheel_test.py WHEEL, after packaging/build-wheel. CI does not build a wheel, because
that is a compilation.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
ORACLE = pathlib.Path(os.environ.get("DSLAUNCH_ORACLE_PYTHON") or ROOT / ".deps/oracle/bin/python3")
MAX_BYTES = 20_000_000


def output(*command, code=0, **options):
    ended = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
                           **options)
    if ended.returncode != code:
        raise AssertionError(f"{command}: exit code {ended.returncode}\n{ended.stdout}{ended.stderr}")
    return ended.stdout + ended.stderr


class WheelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="dslaunch-wheel-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.venv = cls.folder / "venv"
        output(sys.executable, "-m", "venv", cls.venv)
        cls.before = cls.files()
        output(cls.venv / "bin/pip", "install", "--no-deps", "--no-index", WHEEL)
        cls.env = {"PATH": f"{cls.venv}/bin:/usr/bin:/bin", "HOME": str(cls.folder), "XDG_STATE_HOME": str(cls.folder / "state")}

    @classmethod
    def files(cls):
        """Returns the files of the environment, without folders, because pip leaves empty ones."""
        return {path for path in cls.venv.rglob("*") if not path.is_dir() and "__pycache__" not in path.parts}

    def job(self, *words, code=0):
        return output(self.venv / "bin/dslaunch", "--launcher", "local", "--num_nodes", "2", "--num_gpus", "1", *words, code=code,
                      env=self.env)

    def test_1_wheel_is_small_and_tagged(self):
        self.assertLess(WHEEL.stat().st_size, MAX_BYTES)
        self.assertRegex(WHEEL.name, r"^dslaunch-[\d.]+-py3-none-manylinux_2_28_x86_64\.whl$")
        with zipfile.ZipFile(WHEEL) as archive:
            metadata, = [archive.read(name).decode() for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        self.assertRegex(metadata, r"(?m)^Requires-Dist: torch==2\.11\.\*; extra == ['\"]train['\"]")

    def test_2_launcher_and_module_run(self):
        self.assertIn("rank 1", self.job("--show", "all", "sh", "-c", "echo rank $RANK"))
        said = self.job("--show", "all", "python3", "-c", "import dslaunch; print('attempt', dslaunch.current_job().attempt)")
        self.assertIn("attempt 1", said)
        self.assertIn("dslaunch", output(self.venv / "bin/python3", "-m", "dslaunch", "--version", env={**self.env, "PATH": "/usr/bin:/bin"}))
        self.assertIn("fashion_mnist", output(self.venv / "bin/dslaunch", "recipe", "ls", env=self.env))

    def torch(self, version):
        """Makes a folder that looks like an installed torch of this version. None removes the folder."""
        site, = self.venv.glob("lib/python3.*/site-packages")
        shutil.rmtree(site / "torch", ignore_errors=True)
        if version is None:
            return
        (site / "torch/lib").mkdir(parents=True)
        (site / "torch/lib/libtorch_cpu.so").touch()
        header = site / "torch/include/torch/headeronly/version.h"
        header.parent.mkdir(parents=True)
        parts = zip(("MAJOR", "MINOR", "PATCH"), version.split("."))
        header.write_text("".join(f"#define TORCH_VERSION_{name} {number}\n" for name, number in parts))

    def test_3_refuses_other_torch_before_start(self):
        self.torch(None)
        self.assertNotIn("trainer", output(self.venv / "bin/dslaunch", "doctor", "--device", "cpu", env=self.env))
        self.assertRegex(self.job("train", code=69), r"no LibTorch 2\.11 .*pip install 'dslaunch\[train\]'")
        self.torch("2.12.1")
        self.assertRegex(self.job("train", code=69), r"site-packages/torch is LibTorch 2\.12\.1, .*pip install 'torch==2\.11\.\*'")
        self.torch(None)

    def test_4_trainer_uses_installed_torch(self):
        installed = next(ORACLE.parent.parent.glob("lib/python3.*/site-packages/torch"), None)
        if installed is None:
            self.skipTest(f"no PyTorch in the environment of {ORACLE}; packaging/fetch-oracle")
        site, = self.venv.glob("lib/python3.*/site-packages")
        for package in "torch", "nvidia":  # pip installs the packages in the same places
            (site / package).symlink_to(installed.parent / package)
            self.addCleanup((site / package).unlink)
        self.assertIn("LibTorch: 2.11", output(self.venv / "bin/dslaunch", "--version", env=self.env))
        self.assertRegex(self.job("train", "fashion_mnist", "--steps", "5"), r"2 ranks on 2 nodes succeeded")

    def test_5_uninstalling_leaves_no_file(self):
        output(self.venv / "bin/pip", "uninstall", "--yes", "dslaunch")
        self.assertEqual(self.before, self.files())


if __name__ == "__main__":
    WHEEL = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
