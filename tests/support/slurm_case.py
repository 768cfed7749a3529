"""Provides the base of tests with their own Slurm cluster (slurm_cluster.py), which runs for a whole class."""

import shlex
import subprocess

from launcher_case import DSLAUNCH, MARK, LauncherCase
from slurm_cluster import ENDED, SlurmCluster

NOT_RUN = 77


class BatchJob:
    """A Slurm job with the interface of LauncherCase's Job."""

    def __init__(self, cluster, number, path):
        self._cluster, self.number, self._path = cluster, number, path

    @property
    def output(self):
        return self._path.read_text(errors="replace") if self._path.exists() else ""

    def running(self):
        return self._cluster.state_of(self.number)[0] not in ENDED

    def has_failed(self):
        return self._cluster.state_of(self.number)[0] in set(ENDED) - {"COMPLETED"}

    def wait(self):
        """Waits until the job has ended; returns its state and exit code, such as ("FAILED", 7)."""
        return self._cluster.wait_for_end(self.number)


class SlurmCase(LauncherCase):
    cluster_options = {}

    @classmethod
    def setUpClass(cls):
        cls.cluster = SlurmCluster(**cls.cluster_options).__enter__()
        cls.addClassCleanup(cls.cluster.close)

    def setUp(self):
        super().setUp()
        self.addCleanup(self.cluster.run, "scancel", "--user=root", "--signal=KILL", "--full")

    def base_environment(self):
        return {**super().base_environment(), **self.cluster.environment}

    def submit(self, text, *options):
        """Submits a batch script, by default on all four nodes with one task each; returns the BatchJob."""
        script = self.folder / "batch.sh"
        script.write_text(text)
        output = self.folder / "batch.out"
        output.unlink(missing_ok=True)
        done = subprocess.run(["sbatch", "--parsable", *(options or ("-N4", "--ntasks-per-node=1")), f"--output={output}", str(script)],
                              env={**self.base_environment(), MARK: self.mark}, cwd=self.folder,
                              capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        self.assertEqual(0, done.returncode, done.stderr)
        self.last_job = BatchJob(self.cluster, int(done.stdout), output)
        return self.last_job

    def batch_script(self, command, *options):
        """Submits a batch script that only execs `command`; returns the BatchJob."""
        return self.submit(f"#!/bin/bash\nexec {shlex.join(map(str, command))}\n", *options)

    def batch(self, *command):
        """Submits a batch script that execs dslaunch; returns the BatchJob."""
        return self.batch_script([DSLAUNCH, *command])
