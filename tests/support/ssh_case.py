"""Provides the base of SSH tests: writes ssh_config on the front host, runs jobs with a rank on each node, and
simulates silent hosts."""

import os
import signal
import sys
import time

from hosts_case import HostsCase
from launcher_case import bash

UNAVAILABLE, NO_PERMISSION = 69, 77
RANKS = [*bash('touch "$1/rank.$RANK"'), "-"]

# Program that accepts connections on the given ports and never sends anything.
SILENT = """
import select, socket, sys
listeners = [socket.create_server(("", int(port)), backlog=64) for port in sys.argv[1:]]
print("ready", flush=True)
held = []
while True:
    for listener in select.select(listeners, [], [])[0]:
        held.append(listener.accept())
"""


class SshCase(HostsCase):
    def configure(self, text):
        """Sets the front host's ssh_config until the end of this test."""
        self.front.write_file(".ssh/config", text)
        self.addCleanup(lambda: self.front.outside_path(".ssh/config").unlink(missing_ok=True))

    def hostfile(self, nodes, slots=1):
        return self.hosts.hostfile(text="".join(f"{node} slots={slots}\n" for node in nodes))

    def job_on(self, nodes, *options, timeout_s=60, program=None):
        """Runs a job with one rank on each of the nodes; returns (exit code, Job, seconds)."""
        for path in self.folder.glob("rank.*"):
            path.unlink()
        began = time.monotonic()
        code, job = self.run_job("--hostfile", self.hostfile(nodes), "--num_nodes", str(len(nodes)), "--num_gpus", "1",
                                 *options, program or [*RANKS, str(self.folder)], timeout_s=timeout_s)
        self.assert_presentable(job)
        return code, job, time.monotonic() - began

    def bring_agents(self):
        """Copies the agents to all nodes, because a copy in a job of the test may take longer than the test waits."""
        names = [node.name for node in self.hosts.nodes]
        code, job, _ = self.job_on(names, "--connect_timeout", "60", program=["true"], timeout_s=120)
        self.assert_code(0, code, job)

    def ranks_started(self):
        return len(list(self.folder.glob("rank.*")))

    def refused(self, expected, nodes, *options, says, **more):
        code, job, seconds = self.job_on(nodes, *options, **more)
        self.assert_code(expected, code, job)
        self.assert_prints(job, *says)
        self.assertEqual(0, self.ranks_started(), "a program was started")
        self.assert_nothing_left()
        return job, seconds

    def be_silent(self, node, ports):
        listener = node.popen([sys.executable, "-c", SILENT, *map(str, ports)], stdout=-1, text=True)
        self.addCleanup(listener.wait, 10)
        self.addCleanup(os.kill, listener.inner_pid, signal.SIGKILL)
        self.assertEqual("ready\n", listener.stdout.readline())
        listener.stdout.close()

    def leftovers(self):
        return [process for process in super().leftovers() if SILENT not in process.argv]
