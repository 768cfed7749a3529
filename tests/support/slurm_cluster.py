"""Runs a Slurm cluster for a test: munged, slurmctld and one slurmd per node, all on this machine.

Needs root and Debian's slurm-wlm and munge. The cluster uses no file in /etc. Its daemons and their child processes are
in a PID namespace. So all of them end with the test, even if the test is killed.
"""

import os
import pathlib
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile

from free_ports import free_ports
from test_hosts import processes_where, wait_until

ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")  # a job in any other state has not ended
PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "salloc", "sbatch", "scontrol")


def why_not():
    """Returns the reason why no cluster can run on this machine; None if one can."""
    if os.geteuid() != 0:
        return "a Slurm cluster needs root"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"{', '.join(missing)} not installed (Debian: apt-get install slurm-wlm munge)" if missing else None


class SlurmCluster:
    """A cluster with nodes n1, n2, ... of `cores` cores each; a context manager. Slurm's commands need the variables in
    `environment`.

    `gpus`: number of GPUs on each node, according to Slurm. Their devices are terminals, of which 4 always exist.
    `gres_flags`: flags in gres.conf for each node, such as "amd_gpu_env"."""

    def __init__(self, nodes=4, cores=2, slurmd_timeout_s=20, gpus=0, gres_flags=None):
        self._gpus = gpus
        self._gres_flags = gres_flags or {}
        self._slurmd_timeout_s = slurmd_timeout_s
        self.names = [f"n{i + 1}" for i in range(nodes)]
        self.cores = cores

    def __enter__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="dslaunch-slurm-"))
        self.folder.chmod(0o755)
        (self.folder / "state").mkdir()
        self._init = None
        self.environment = {"SLURM_CONF": str(self.folder / "slurm.conf")}
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def _start(self):
        folder = self.folder
        key = folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        control, *ports = free_ports(1 + len(self.names))
        nodes = "".join(f"NodeName={name} NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1 Port={port} "
                        f"CPUs={self.cores} {f'Gres=gpu:{self._gpus} ' if self._gpus else ''}State=UNKNOWN\n"
                        for name, port in zip(self.names, ports))
        if self._gpus:
            (folder / "gres.conf").write_text("".join(
                f"NodeName={name} Name=gpu File=/dev/tty[0-{self._gpus - 1}]{f' Flags={flags}' if flags else ''}\n"
                for name, flags in ((name, self._gres_flags.get(name)) for name in self.names)))
        (folder / "slurm.conf").write_text(
            f"ClusterName=test\n{'GresTypes=gpu' if self._gpus else ''}\n"
            f"SlurmctldHost={socket.gethostname()}(127.0.0.1)\n"
            f"SlurmctldPort={control}\n"
            "SlurmUser=root\nSlurmdUser=root\n"
            f"AuthType=auth/munge\nAuthInfo=socket={folder}/munge.socket\nCredType=cred/munge\n"
            f"StateSaveLocation={folder}/state\nSlurmdSpoolDir={folder}/spool.%n\n"
            f"SlurmctldPidFile={folder}/slurmctld.pid\nSlurmdPidFile={folder}/slurmd.%n.pid\n"
            f"SlurmctldLogFile={folder}/slurmctld.log\nSlurmdLogFile={folder}/slurmd.%n.log\n"
            "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSwitchType=switch/none\nMpiDefault=none\n"
            "SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\n"
            # Without these settings, a job that cannot start at once is reconsidered only after 30 or 60 s.
            "SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0\n"
            f"ReturnToService=2\nKillWait=5\nSlurmdTimeout={self._slurmd_timeout_s}\n"
            f"{nodes}"
            "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n")
        daemons = [["munged", f"--key-file={key}", f"--socket={folder}/munge.socket", f"--pid-file={folder}/munge.pid",
                    f"--log-file={folder}/munge.log", f"--seed-file={folder}/munge.seed", "--num-threads=2", "--force"],
                   ["slurmctld", "-c"], *(["slurmd", "-N", name] for name in self.names)]
        hosts = folder / "hosts"  # lets nodes find each other by Slurm's names; mounted only in the daemons' namespace
        hosts.write_text(" ".join(["127.0.0.1", "localhost", socket.gethostname(), *self.names]) + "\n")
        daemons.insert(0, ["mount", "--bind", str(hosts), "/etc/hosts"])
        script = "".join(shlex.join(words) + " || exit 1\n" for words in daemons)
        # bash reaps orphans of the daemons until its stdin ends.
        self._init = subprocess.Popen(
            ["setpriv", "--pdeathsig=KILL", "unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c",
             script + "while read -r _; do :; done"],
            env={**os.environ, **self.environment}, stdin=subprocess.PIPE)

        def all_idle():
            shown = self.run("sinfo", "-h", "-o", "%T %D").stdout
            return shown.split() == ["idle", str(len(self.names))]
        wait_until(all_idle, 30, "all nodes of the Slurm cluster are idle", poll_s=0.1)

    def show(self, job):
        """Returns the fields that `scontrol show job` prints for a Slurm job, by name."""
        return dict(word.split("=", 1) for word in self.run("scontrol", "show", "job", str(job)).stdout.split() if "=" in word)

    def run(self, *argv, timeout_s=60):
        """Runs a Slurm command; returns a subprocess.CompletedProcess with text output."""
        return subprocess.run(argv, env={**os.environ, **self.environment}, capture_output=True, text=True,
                              timeout=timeout_s, stdin=subprocess.DEVNULL)

    def state_of(self, job):
        """Returns (state, exit code) of a Slurm job, such as ("FAILED", 7)."""
        words = self.show(job)
        return words.get("JobState"), int(words.get("ExitCode", "-1:0").split(":")[0])

    def wait_for_end(self, job, timeout_s=60):
        try:
            wait_until(lambda: self.state_of(job)[0] in ENDED, timeout_s, poll_s=0.1)
        except TimeoutError:
            raise AssertionError(f"job {job} of Slurm has not ended after {timeout_s} s:\n{self.words_on(job)}") from None
        return self.state_of(job)

    def words_on(self, job):
        """Returns scontrol's output about a job and the last lines of the daemons' logs, for a test's failure
        message."""
        logs = "".join(f"{path.name}:\n" + "".join(path.read_text(errors="replace").splitlines(keepends=True)[-15:])
                       for path in sorted(self.folder.glob("slurm*.log")))
        return self.run("scontrol", "show", "job", str(job)).stdout + logs

    def kill_slurmd(self, name):
        """Kills a node's slurmd as if it had crashed. Processes that it has started continue."""
        config = self.environment["SLURM_CONF"]
        daemon, = processes_where(lambda process: process.argv == ("slurmd", "-N", name) and
                                  process.environ.get("SLURM_CONF") == config)
        os.kill(daemon.pid, signal.SIGKILL)

    def close(self):
        """Ends the cluster. May be called twice."""
        init, self._init = self._init, None
        if init is None:
            return
        init.kill()  # kills unshare; its child, the namespace's first process, then dies, and with it the whole namespace
        init.wait(timeout=10)
        init.stdin.close()
        shutil.rmtree(self.folder, ignore_errors=True)
