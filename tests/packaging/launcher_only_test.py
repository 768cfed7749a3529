"""Tests dslaunch after `pip install` without the trainer's LibTorch.
`dslaunch doctor` finds no problem, and commands that need the trainer name the package to install."""

import shutil
import subprocess
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from launcher_case import BUILD, LauncherCase, main  # noqa: E402

UNAVAILABLE = 69
INSTALL = r"pip install 'dslaunch\[train\]'"


class LauncherOnly(LauncherCase):
    def setUp(self):
        super().setUp()
        self.bin = self.folder / "tree" / "bin"
        self.bin.mkdir(parents=True)
        for name in ("dslaunch", "dslaunch-agent"):
            shutil.copy(BUILD / "bin" / name, self.bin)
        self.trainer = self.bin / "dslaunch-train"
        self.trainer.write_text("#!/bin/sh\necho 'libtorch.so: cannot open shared object file' >&2\nexit 127\n")
        self.trainer.chmod(0o755)

    def dslaunch(self, *words):
        run = subprocess.run([self.bin / "dslaunch", *words], env=self.base_environment(), cwd=self.folder,
                             stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        return run.returncode, run.stdout + run.stderr

    def test_doctor_passes_without_the_optional_trainer(self):
        code, said = self.dslaunch("doctor", "--device", "cpu")
        self.assertEqual(0, code, said)
        self.assertNotIn("trainer", said)
        code, said = self.dslaunch("doctor", "--device", "cpu", "bench", "comm")
        self.assertEqual(UNAVAILABLE, code, said)
        self.assertRegex(said, rf"FAIL +trainer: \S+dslaunch-train does not start: libtorch\.so(?s:.)*{INSTALL}")

    def test_commands_of_trainer_name_missing_package(self):
        for words in (["train"], ["predict"], ["bench", "comm"], ["checkpoint", "verify", "x"]):
            with self.subTest(words=words):
                code, said = self.dslaunch(*words)
                self.assertEqual(UNAVAILABLE, code, said)
                self.assertRegex(said, rf"^dslaunch: no LibTorch 2\.11 beside dslaunch-train; .*{INSTALL}")
        self.trainer.unlink()
        code, said = self.dslaunch("checkpoint", "ls", "x")
        self.assertEqual(UNAVAILABLE, code, said)
        self.assertRegex(said, rf"^dslaunch: dslaunch-train, the trainer, is not in \S+/bin; .*{INSTALL}")

    def test_doctor_checks_the_program_of_a_job(self):
        code, said = self.dslaunch("doctor", "--device", "cpu", "t.py", "--lr", "1")
        self.assertEqual(UNAVAILABLE, code, said)
        self.assertRegex(said, r"FAIL +program: script 't\.py': No such file or directory \(in \S+\)")
        (self.folder / "t.py").write_text("raise SystemExit('started')\n")
        code, said = self.dslaunch("doctor", "--device", "cpu", "t.py")
        self.assertEqual(0, code, said)
        self.assertRegex(said, r"localhost +(ok .* runs \S+python3 \(Python 3\.\d+|warn)")
        code, said = self.dslaunch("doctor", "--chdir", "/no/such", "--device", "cpu", "t.py")
        self.assertEqual(UNAVAILABLE, code, said)
        self.assertRegex(said, r"FAIL +program: working directory /no/such does not exist")


if __name__ == "__main__":
    main()
