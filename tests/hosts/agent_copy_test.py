"""Tests copying the agent to nodes that lack it: slow networks, shared homes, leftovers, other folders."""

import os
import signal
import sys
import time

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from hosts_case import HostsCase, main  # noqa: E402
from launcher_case import DSLAUNCH  # noqa: E402
from test_hosts import wait_until  # noqa: E402

COPY_LIMIT_BYTES = 10_000_000  # limit for one copy on the network; the agent itself has 18 MB
TOOLS = "sh uname mkdir id find chmod cat wc sha256sum sync ln mv rm rmdir ls sleep"


class CopyCase(HostsCase):
    def job(self, *options, timeout_s=60):
        return self.run_job("--hostfile", self.hosts.hostfile(slots=1), *options, "/bin/true", timeout_s=timeout_s)

    def slow(self, rate):
        """Limits the rate at which the front end sends. Drops no packets, because the reset of a killed program's
        connection is sent only once."""
        done = self.front.run(["tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "64kb", "limit", "16mb"])
        self.assertEqual(0, done.returncode, done.stderr)

    def sent_bytes(self):
        return int(self.front.run(["cat", "/sys/class/net/eth0/statistics/tx_bytes"]).stdout)

    def cache(self, node):
        """Returns the relative paths of all files and folders in the node's cache."""
        return node.run(["find", f"{node.home}/.cache/dslaunch", "-mindepth", "1", "-printf", "%P\\n"]).stdout.split()


class SlowNetwork(CopyCase):
    def test_copy_may_outlast_connect_timeout(self):
        self.fresh_hosts(count=4, agent=None)
        self.slow("20mbit")
        began = time.monotonic()
        code, job = self.job("--connect_timeout", "4", timeout_s=120)
        self.assert_code(0, code, job)
        self.assertGreater(time.monotonic() - began, 4, "the network was not slow")
        self.assert_nothing_left()

    def test_interrupted_copy_leaves_no_files(self):
        self.fresh_hosts(count=1, agent=None)
        node, = self.hosts.nodes
        self.slow("2mbit")
        job = self.start("--hostfile", self.hosts.hostfile(slots=1), "true")
        wait_until(lambda: any("/" in name for name in self.cache(node)), 20, "a copy is under way")
        os.kill(job.pid, signal.SIGKILL)
        self.wait(job, 10)
        # The kernel still has some MB to send, which takes time on this network.
        wait_until(lambda: not self.cache(node), 60, "the copy is gone")


class OneHome(CopyCase):
    def test_shared_home_gets_one_copy(self):
        self.fresh_hosts(count=6, shared_home=True, agent=None)
        before = self.sent_bytes()
        code, job = self.job()
        self.assert_code(0, code, job)
        self.assertLess(self.sent_bytes() - before, COPY_LIMIT_BYTES)
        name, = self.cache(self.hosts.nodes[0])
        self.assertRegex(name, "^agent-[0-9a-f]+$")
        self.assert_nothing_left()

    def test_replaces_stalled_copy(self):
        self.fresh_hosts(count=2, shared_home=True, agent=None)
        node = self.hosts.nodes[0]
        self.assert_code(0, *self.job())
        name, = self.cache(node)
        cache = f"{node.home}/.cache/dslaunch"
        done = node.run(["sh", "-c", f"cd {cache} && rm {name} && mkdir .copy-{name[6:]} && "
                         f"echo half > .copy-{name[6:]}/0f"])
        self.assertEqual(0, done.returncode, done.stderr)
        self.assert_code(0, *self.job("--connect_timeout", "4", timeout_s=120))
        self.assertEqual([name], self.cache(node))


class WhatIsLeft(CopyCase):
    def test_removes_old_builds_and_leftovers(self):
        self.fresh_hosts(count=1, agent=None)
        node, = self.hosts.nodes
        done = node.run(["sh", "-c", f"mkdir -m 700 -p {node.home}/.cache/dslaunch/.copy-0d && "
                         f"cd {node.home}/.cache/dslaunch && touch .copy-0d/1 .agent-x agent-01 agent-02 && "
                         "touch -d '100 days ago' agent-01 && touch -d '2 days ago' .copy-0d .agent-x"])
        self.assertEqual(0, done.returncode, done.stderr)
        self.assert_code(0, *self.job())
        left = self.cache(node)
        self.assertEqual(2, len(left), left)
        self.assertIn("agent-02", left)

    def test_start_renews_time_of_agent_file(self):
        self.fresh_hosts(count=1, agent=None)
        node, = self.hosts.nodes
        self.assert_code(0, *self.job())
        path = f"{node.home}/.cache/dslaunch/{self.cache(node)[0]}"
        node.run(["touch", "-d", "80 days ago", path])
        self.assert_code(0, *self.job())
        self.assertEqual("", node.run(["find", path, "-mtime", "+1"]).stdout)


class OtherNodes(CopyCase):
    def test_noexec_home_needs_agent_dir(self):
        self.fresh_hosts(count=1, agent=None)
        node, = self.hosts.nodes
        cache = f"{node.home}/.cache"
        done = node.run(["sh", "-c", f"mkdir -p {cache} && mount -t tmpfs -o noexec tmpfs {cache}"])
        self.assertEqual(0, done.returncode, done.stderr)
        code, job = self.job()
        self.assert_code(69, code, job)
        self.assert_prints(job, "may not be started .mount option noexec", "--agent_dir")
        self.assertEqual([], self.cache(node))
        folder = f"{node.home}/other 'place"
        code, job = self.job("--agent_dir", folder, "--detach")
        self.assert_code(0, code, job)
        self.assertEqual([], self.cache(node))
        found = node.run(["find", folder, "-name", "agent-*"]).stdout.splitlines()
        self.assertEqual(1, len(found), found)
        # Later commands find the agent in that folder.
        said = self.front.run([DSLAUNCH, "attach", "last"])
        self.assertEqual(0, said.returncode, said.stderr)

    def test_copies_agent_without_gzip_on_node(self):
        self.fresh_hosts(count=1, agent=None)
        node, = self.hosts.nodes
        tools = f"{node.home}/tools"
        done = node.run(["sh", "-c", f"mkdir {tools}; for t in {TOOLS}; do ln -s $(which $t) {tools}/; done"])
        self.assertEqual(0, done.returncode, done.stderr)
        node.write_file(".bashrc", f"export PATH={tools}\n")
        self.assert_code(0, *self.job())


if __name__ == "__main__":
    main()
