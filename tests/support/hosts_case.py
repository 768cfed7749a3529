"""Provides the base of the tests that run dslaunch on the front test host, with its nodes behind real sshds."""

import os
import subprocess
import sys

from launcher_case import BUILD, DSLAUNCH, ROOT, LauncherCase, supervisors_and_agents
from launcher_case import main as launcher_main
from test_hosts import STATE, TestHosts, wait_until, why_not

ORACLE_PYTHON = ROOT / ".deps" / "oracle" / "bin" / "python3"
AGENT = BUILD / "bin" / "dslaunch-agent"  # agent of hosts that need no copy of the agent

# Runs jobs as an ordinary user, because nothing may require root's privileges (cgroups, reading other users'
# processes).
AS_USER = {"user": "tester", "binds": {f"{STATE}/bin": BUILD / "bin"}}


class HostsCase(LauncherCase):
    """Base of tests on test hosts. The hosts start at their first use and run until the class ends. A test that
    breaks hosts must use `fresh_hosts`."""

    host_options = {}

    def setUp(self):
        super().setUp()
        os.chmod(self.folder, 0o777)
        self._fresh_hosts = None
        self.addCleanup(self.save_sshd_logs)

    @property
    def hosts(self):
        return self._fresh_hosts or self._class_hosts()

    @classmethod
    def _class_hosts(cls):
        if "_shared_hosts" not in vars(cls):
            cls._shared_hosts = TestHosts(**{"count": 2, **cls.host_options}).__enter__()
            cls.addClassCleanup(cls._shared_hosts.close)
        return cls._shared_hosts

    def fresh_hosts(self, **options):
        """Starts hosts for this test only, so the test may break them. Their nodes have the agent."""
        self._fresh_hosts = TestHosts(**{"count": 2, "agent": AGENT, **options}).__enter__()
        self.addCleanup(self._fresh_hosts.close)
        return self._fresh_hosts

    @property
    def front(self):
        return self.hosts.front

    @property
    def everyone(self):
        return [self.hosts.front, *self.hosts.nodes]

    def popen(self, argv, env, cwd, **options):
        if self.hosts.user != "root":
            argv = [f"{STATE}/bin/dslaunch" if word == DSLAUNCH else word for word in argv]
        return self.front.popen(argv, env, cwd, stdin=subprocess.DEVNULL, **options)

    def base_environment(self):
        return {}

    def leftovers(self):
        """Returns all processes on all hosts, except each host's own sshd and first process."""
        return [process for host in self.everyone if os.path.exists(f"/proc/{host.init_pid}")
                for process in host.processes()]

    def two_by_two(self, text=None):
        return ["--hostfile", self.hosts.hostfile(slots=2, text=text), "--num_nodes", "2", "--num_gpus", "2"]

    def supervisor_and_agent(self, node):
        """Returns the only supervisor and the only agent of a node, within 5 s."""
        def both():
            supervisors, agents = supervisors_and_agents(node.processes())
            return (supervisors[0], agents[0]) if (len(supervisors), len(agents)) == (1, 1) else None
        return wait_until(both, 5, f"one supervisor and one agent on {node.name}")

    def save_sshd_logs(self):
        """Prints the logs of the sshds if the test has failed."""
        outcome = getattr(self, "_outcome", None)
        if outcome is None or outcome.success:
            return
        for node in self.hosts.nodes:
            if os.path.exists(f"/proc/{node.init_pid}"):
                print(f"--- sshd of {node.name}:\n{node.sshd_log()[-3000:]}", file=sys.stderr)


class OutsideCase(HostsCase):
    """Base of tests in which dslaunch runs outside of the hosts' namespaces. The program self.enter runs a command
    in a host, like kubectl exec."""

    def setUp(self):
        super().setUp()
        os.chmod(self.folder, 0o755)
        cases = "".join(f"  {node.name}) pid={node.init_pid}; home={node.home} ;;\n" for node in self.hosts.nodes)
        self.enter = self.folder / "enter"
        self.enter.write_text("#!/bin/sh\n"
                              f"case $1 in\n{cases}  *) echo \"enter: no node $1\" >&2; exit 3 ;;\nesac\n"
                              "shift\n"
                              "exec nsenter --target=$pid --net --mount --pid --uts --wd=/ -- env HOME=\"$home\" \"$@\"\n")
        self.enter.chmod(0o755)

    def popen(self, argv, env, cwd, **options):
        return LauncherCase.popen(self, argv, env, cwd, **options)

    def base_environment(self):
        return LauncherCase.base_environment(self)

    def leftovers(self):
        return super().leftovers() + LauncherCase.leftovers(self)


def main():
    reason = why_not()
    if reason:
        # Exits with a failure, never a pass. ./run-tests skips these tests and reports the reason instead.
        sys.exit(f"NOT RUN: {reason}")
    launcher_main()
