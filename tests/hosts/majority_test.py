"""Tests detached jobs on three test hosts. A majority of the nodes must continue without the node that hosts the
rendezvous, or without any other node. The minority must end its ranks, and two parts must never both continue. With
DSLAUNCH_TEST_FULL=1, each fault is injected on both kinds of nodes."""

import json
import os
import signal
import sys
import time
import unittest

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
import election_rows  # noqa: E402
from election_rows import DEAD_S, ELECTED_WITHIN_S, GRACE_S, OPTIONS, SCRIPT  # noqa: E402
from hosts_case import AS_USER, HostsCase, main  # noqa: E402
from launcher_case import bash  # noqa: E402
from test_hosts import wait_until  # noqa: E402

FULL = os.environ.get("DSLAUNCH_TEST_FULL") == "1"


class MajorityCase(HostsCase):
    def detach(self, *options):
        """Starts a detached job of three nodes with two ranks each, which may restart; returns the job's id."""
        self.fresh_hosts(**{"count": 3, **self.host_options})
        code, job = self.run_job("--hostfile", self.hosts.hostfile(slots=2), *OPTIONS, *options,
                                 "--log_dir", self.folder / "logs", bash(SCRIPT), "-", str(self.folder))
        self.assert_code(0, code, job)
        self.wait_for_files(job, "up.1.*", 6)
        return job.stdout.strip()

    def ranks(self, node):
        return [process for process in node.processes() if process.environ.get("RANK")]

    def attempts(self, node):
        return {process.environ.get("DSLAUNCH_ATTEMPT") for process in self.ranks(node)}

    def wait_for_attempt(self, number, nodes):
        """Waits until the attempt's ranks are up, only on `nodes`. Checks that two attempts never run at the same
        time."""
        def is_up():
            seen = [self.attempts(node) for node in self.hosts.nodes if os.path.exists(f"/proc/{node.init_pid}")]
            self.assertLessEqual(len(set().union(*seen)), 1, seen)
            return len(list(self.folder.glob(f"up.{number}.*"))) == 2 * len(nodes)
        wait_until(is_up, ELECTED_WITHIN_S, f"attempt {number}: {self.logs()}")
        self.assertEqual({node.name for node in nodes},
                         {path.name.split(".")[2] for path in self.folder.glob(f"up.{number}.*")})

    def logs(self):
        return "\n".join(f"--- {path}\n{path.read_text()}" for path in sorted(self.folder.glob("logs/**/agent.log")))

    def state(self, job_id):
        code, job = self.run_job("ps", "--all", "--json")
        self.assert_code(0, code, job)
        return {entry["job"]: entry for entry in json.loads(job.stdout)}[job_id]

    def finish(self, job_id):
        (self.folder / "go").touch()
        wait_until(lambda: self.state(job_id)["state"] == "ended", 60, f"the job ends: {self.logs()}")
        self.assertEqual(0, self.state(job_id)["exit_code"])
        code, job = self.run_job("attach", job_id)
        self.assert_code(0, code, job)
        self.assert_presentable(job)


class Majority(MajorityCase):
    def test_continues_after_loss_of_rendezvous_node(self):
        job_id = self.detach()
        node1, node2, node3 = self.hosts.nodes
        supervisor, agent = self.supervisor_and_agent(node1)
        viewer = self.start("attach", job_id, "--show", "all")
        for node in self.hosts.nodes:
            self.wait_for_output(viewer, rf"\[{node.name}:\d+\] up")
        for process in (supervisor, agent):
            os.kill(process.pid, signal.SIGKILL)
        wait_until(lambda: self.state(job_id).get("detail", "") == "restarting", 10, "ps says that it restarts")
        self.wait_for_attempt(2, [node2, node3])
        self.assertEqual("running", self.state(job_id)["state"])
        self.assert_prints(viewer, "node1 was lost", "node2 hosts the rendezvous: a majority of the nodes has elected it")
        self.finish(job_id)
        self.assert_code(0, self.wait(viewer, 90), viewer)
        self.assert_nothing_left(10)

    def test_minority_after_second_power_cut_ends_ranks(self):
        job_id = self.detach("--nnodes", "1:3")
        node1, node2, node3 = self.hosts.nodes
        node1.power_cut()
        self.wait_for_attempt(2, [node2, node3])
        node2.power_cut()
        wait_until(lambda: not self.ranks(node3), ELECTED_WITHIN_S, "one node of three ends its ranks")
        time.sleep(ELECTED_WITHIN_S)
        self.assertEqual([], self.ranks(node3), self.logs())

    def test_continues_if_rendezvous_node_is_cut_off(self):
        job_id = self.detach("--nnodes", "1:3")
        node1, node2, node3 = self.hosts.nodes
        node1.link_down()
        self.wait_for_attempt(2, [node2, node3])
        self.assertEqual([], self.ranks(node1))
        node1.link_up()
        for _ in range(10):
            self.assertEqual(set(), self.attempts(node1))
            time.sleep(0.3)
        self.finish(job_id)

    def test_continues_if_another_node_is_cut_off(self):
        job_id = self.detach("--nnodes", "1:3")
        node1, node2, node3 = self.hosts.nodes
        node3.link_down()
        wait_until(lambda: len(list(self.folder.glob("up.2.*"))) == 4, ELECTED_WITHIN_S, "the majority goes on")
        wait_until(lambda: not self.ranks(node3), 2 * DEAD_S + GRACE_S + 5, "the minority ends its ranks")
        time.sleep(ELECTED_WITHIN_S)
        self.assertEqual([{"2"}, {"2"}, set()], [self.attempts(node) for node in self.hosts.nodes], self.logs())
        node3.link_up()
        self.finish(job_id)


class OneOfThree(unittest.TestCase):
    """Tests each fault of one node. The other two nodes must continue without it, and the job must end with 0."""

    # (fault, where, is_attached)
    FEW = {("agent", "node1", False), ("network cut, out", "node1", False), ("network cut, in", "node1", False),
           ("stop agent", "node3", False), ("network cut, in", "node1", True), ("firewall between nodes, in", "node1", True),
           ("firewall between nodes, out", "node1", True)}

    def test_job_survives_every_fault_of_one_node(self):
        for fault, where, user, is_attached in election_rows.all_rows(["root"]):
            if not FULL and (fault, where, is_attached) not in self.FEW:
                continue
            with self.subTest(fault=fault, where=where, is_attached=is_attached):
                row = election_rows.run_row(fault, where, user, is_attached)
                self.assertEqual([], row.problems, row.output)


class MajorityAsUser(MajorityCase):
    host_options = AS_USER

    def test_continues_after_power_cut_as_user(self):
        job_id = self.detach()
        node1, node2, node3 = self.hosts.nodes
        node1.power_cut()
        self.wait_for_attempt(2, [node2, node3])
        self.finish(job_id)

    def test_node_loss_without_restarts_left_ends_job(self):
        job_id = self.detach("--max_restarts", "0", "--nnodes", "3")
        self.hosts.nodes[0].power_cut()
        wait_until(lambda: not any(self.ranks(node) for node in self.hosts.nodes[1:]), 15, "the ranks end")
        wait_until(lambda: self.state(job_id)["state"] != "running", 30, "the job ends")


if __name__ == "__main__":
    main()
