"""Tests an agent that sends invalid messages. It must control neither the exit code nor dslaunch's use of memory and
disk."""

import os
import subprocess
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from launcher_case import BUILD, MARK, LauncherCase, main  # noqa: E402

MEMORY_MB = 150  # a front end of such a small job uses about 40 MB
DISK_MB = 40


class HostileNode(LauncherCase):
    def run_with(self, part):
        """Runs a job whose only agent plays `part`; returns (exit code, stderr, peak memory in MB, bytes in the
        state folder)."""
        folder = self.folder / "bin"
        folder.mkdir(exist_ok=True)
        for name, binary in (("dslaunch", BUILD / "bin/dslaunch"), ("dslaunch-agent", BUILD / "tests/hostile_agent")):
            if not (folder / name).exists():
                self.copy(binary, folder / name)
        env = {**self.base_environment(), MARK: self.mark, "HOSTILE_AGENT": part}
        with open(self.folder / "stderr", "w+b") as err:
            process = subprocess.Popen([folder / "dslaunch", "--launcher", "local", "--num_gpus", "1", "true"], env=env,
                                       cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err)
            _, status, usage = os.wait4(process.pid, 0)
            err.seek(0)
            text = err.read().decode(errors="replace")
        process.returncode = os.waitstatus_to_exitcode(status)
        state = self.folder / "state"
        size = sum(path.stat().st_size for path in state.rglob("*") if path.is_file())
        return process.returncode, text, usage.ru_maxrss / 1024, size

    @staticmethod
    def copy(binary, path):
        """Hard-links the file if possible, otherwise copies it. A symbolic link would not work, because dslaunch
        searches its own folder for its agent."""
        try:
            os.link(binary, path)
        except OSError:
            subprocess.run(["cp", binary, path], check=True)

    def loses(self, part, code, says):
        got, text, memory_mb, size = self.run_with(part)
        self.assertEqual(code, got, text[-2000:])
        self.assertIn(says, text[-4000:])
        self.assertLess(memory_mb, MEMORY_MB)
        self.assertLess(size, DISK_MB << 20)

    def test_rejects_failures_with_invalid_exit_codes(self):
        for code in (0, 256):
            self.loses(f"failure-{code}", 69, "localhost was lost: its agent sent exit code of a failure = "
                       f"{code}, which is not from 1 to 255")
        self.loses("prepare-0", 69, "localhost: its agent sent exit code of a failure = 0")

    def test_rejects_success_of_ranks_never_reported(self):
        self.loses("success", 70, "localhost reported the success of 0 of its 1 ranks")

    def test_rejects_a_flood_of_events(self):
        self.loses("events", 69, "localhost was lost: its agent sent more events than any job has")

    def test_rejects_a_flood_of_messages(self):
        self.loses("notices", 69, "localhost was lost: the connection to it broke")


if __name__ == "__main__":
    main()
