"""Tests jobs on the oldest supported kernel, emulated by denying newer system calls."""

import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from launcher_case import ROOT, LauncherCase, main  # noqa: E402

NODES = ["--launcher", "local", "--num_nodes", "2", "--num_gpus", "2"]


class OldKernel(LauncherCase):
    def popen(self, argv, env, cwd, **options):
        return super().popen([sys.executable, ROOT / "tests/support/old_kernel.py", *argv], env, cwd, **options)

    def test_job_succeeds_without_new_system_calls(self):
        code, job = self.run_job(NODES, "--show", "all", "sh", "-c", "echo rank $RANK")
        self.assert_code(0, code, job)
        self.assert_prints(job, *(f"rank {rank}" for rank in range(4)))
        self.assert_nothing_left()

    def test_failure_is_named_and_leaves_no_process(self):
        code, job = self.run_job(NODES, "bash", "-c", "(sleep 61 &); [ $RANK != 3 ] || kill -SEGV $$; sleep 60")
        self.assert_code(128 + 11, code, job)
        self.assert_prints(job, r"rank 3 \(node1, local rank 1\) was killed by SIGSEGV")
        self.assert_nothing_left()


if __name__ == "__main__":
    main()
