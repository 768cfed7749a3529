"""Tests network partitions: both sides must end cleanly, and a fenced node must not act when the network heals."""

import os
import re
import signal
import sys
import time

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from hosts_case import AS_USER, HostsCase, main  # noqa: E402
from launcher_case import bash  # noqa: E402
from test_hosts import wait_until  # noqa: E402

DEAD_S = 2
TIMES = ["--grace", "1", "--heartbeat_s", "0.33", "--suspect_s", "1", "--dead_s", str(DEAD_S)]
# Creates a file with its attempt and its host, then waits for the file `go`.
SCRIPT = """trap 'exit 143' TERM; touch "$1/up.$DSLAUNCH_ATTEMPT.$(hostname).$RANK"
            until [ -e "$1/go" ]; do sleep 0.05; done"""
# Works like SCRIPT, but also writes numbered lines all the time.
LINES = """trap 'exit 143' TERM; touch "$1/up.$DSLAUNCH_ATTEMPT.$(hostname).$RANK"; i=0
           until [ -e "$1/go" ]; do i=$((i + 1)); echo "line $i"; sleep 0.01; done; echo "last line $i" """


class PartitionCase(HostsCase):
    def start_on(self, hosts, *options, script=SCRIPT):
        job = self.start("--hostfile", hosts.hostfile(slots=2), *options, *TIMES, "--log_dir", self.folder / "logs",
                         bash(script), "-", str(self.folder))
        self.wait_for_files(job, "up.1.*", 2 * len(hosts.nodes))
        return job

    def ranks(self, node):
        return [process for process in node.processes() if process.environ.get("RANK")]

    def attempts(self, node):
        return {process.environ.get("DSLAUNCH_ATTEMPT") for process in self.ranks(node)}


class Partition(PartitionCase):
    """Tests the default policy, by which the job ends."""

    def test_partition_ends_ranks_on_both_nodes(self):
        hosts = self.fresh_hosts(**self.host_options)
        node1, node2 = hosts.nodes
        job = self.start_on(hosts)
        node2.link_down()
        for node in (node1, node2):
            wait_until(lambda node=node: not self.ranks(node), DEAD_S + 5, f"no ranks on {node.name}")
        self.assert_code(69, self.wait(job, 30), job)
        self.assert_prints(job, r"node2 was lost")
        self.assert_presentable(job)
        node2.link_up()
        self.assert_nothing_left(10)


class CableIsOut(PartitionCase):
    """Tests disconnections that are shorter than the silence that makes a node lost, with the default times."""

    def check_nothing_is_lost(self, number):
        hosts = self.fresh_hosts()
        job = self.start("--hostfile", hosts.hostfile(slots=2), "--grace", "1", "--log_dir", self.folder / "logs",
                         bash(SCRIPT), "-", str(self.folder))
        self.wait_for_files(job, "up.1.*", 4)
        hosts.nodes[number].link_down()
        time.sleep(5)
        hosts.nodes[number].link_up()
        time.sleep(3)
        self.assertTrue(job.running(), job.output)
        (self.folder / "go").touch()
        self.assert_code(0, self.wait(job, 60), job)
        self.assertNotIn("was lost", job.output)
        self.assert_nothing_left(10)

    def test_short_cut_of_node_loses_nothing(self):
        self.check_nothing_is_lost(1)

    def test_short_cut_of_rendezvous_node_loses_nothing(self):
        self.check_nothing_is_lost(0)


class PartitionForAUser(Partition):
    host_options = AS_USER


class FrontEndIsCutOff(PartitionCase):
    """Tests jobs in which only the front end is silent, so that the nodes depend on its lease."""

    def test_cut_shorter_than_lease_loses_nothing(self):
        hosts = self.fresh_hosts()
        job = self.start_on(hosts, "--lease_s", "30")
        hosts.front.link_down()
        time.sleep(3 * DEAD_S)
        self.assertTrue(job.running(), job.output)
        hosts.front.link_up()
        (self.folder / "go").touch()
        self.assert_code(0, self.wait(job, 60), job)
        self.assert_prints(job, "no heartbeat from any node for 2 s; the job continues", "4 ranks on 2 nodes succeeded")
        self.assertNotIn("lost", job.output)
        self.assert_nothing_left(10)

    def test_cut_longer_than_lease_ends_job(self):
        hosts = self.fresh_hosts()
        job = self.start_on(hosts, "--lease_s", "6")
        hosts.front.link_down()
        self.assert_code(69, self.wait(job, 60), job)
        self.assert_prints(job, "node1 was lost: no heartbeat from it for 6 s")
        for node in hosts.nodes:
            wait_until(lambda node=node: not self.ranks(node), 20, f"no ranks on {node.name}")
        hosts.front.link_up()
        self.assert_nothing_left(30)


class Resets(PartitionCase):
    """Tests the reset of one TCP connection: the connection is made again, or one node is lost."""

    def logged_by(self, node):
        return "".join(path.read_text() for path in self.folder.glob(f"logs/**/{node.name}/agent.log"))

    def check_lines(self, job, ranks):
        """Checks that each rank's lines are shown once and in order."""
        for rank in ranks:
            numbers = re.findall(rf"^\[\w+:{rank}\] line (\d+)$", job.stdout, re.M)
            last = re.search(rf"^\[\w+:{rank}\] last line (\d+)$", job.stdout, re.M)
            self.assertTrue(last, f"rank {rank} does not end:\n{job.output[-3000:]}")
            self.assertEqual([str(number) for number in range(1, int(last[1]) + 1)], numbers, f"lines of rank {rank}")

    def check_resets(self, reset, *options):
        hosts = self.hosts
        job = self.start_on(hosts, "--show", "all", *options, script=LINES)
        for number in range(1, 4):
            reset(hosts.nodes[1])
            wait_until(lambda number=number: self.logged_by(hosts.nodes[1]).count("is connected again") == number, 10,
                       f"connection {number + 1}")
            time.sleep(0.3)
            self.assertTrue(job.running(), job.output)
        (self.folder / "go").touch()
        self.assert_code(0, self.wait(job, 60), job)
        self.check_lines(job, range(4))
        self.assertNotIn("lost:", job.output)
        self.assert_prints(job, "the connection to node2 broke and was made again; nothing was lost",
                           "4 ranks on 2 nodes succeeded")
        self.assert_presentable(job)
        self.assert_nothing_left(10)

    def test_remakes_ssh_connection_of_node(self):
        self.fresh_hosts()
        self.check_resets(lambda node: node.reset_connections("sport = :22"))

    def test_remakes_connection_of_system_ssh(self):
        self.fresh_hosts()
        self.check_resets(lambda node: node.reset_connections("sport = :22"), "--ssh_command", "ssh")

    def test_user_reconnects_after_kill_of_sshd(self):
        self.fresh_hosts(**AS_USER)

        def kill_sshd(node):
            for process in node.processes():
                if process.name.startswith("sshd") or process.comm.startswith("sshd"):
                    os.kill(process.pid, signal.SIGKILL)
        self.check_resets(kill_sshd)

    def test_node_that_cannot_reconnect_is_lost(self):
        hosts = self.fresh_hosts(count=3)
        job = self.start_on(hosts, "--nnodes", "2:3", "--max_restarts", "2", "--restart_delay_s", "0.1")
        hosts.nodes[2].stop_sshd()
        hosts.nodes[2].reset_connections("sport = :22")
        self.wait_for_files(job, "up.2.*", 4, timeout_s=30)
        (self.folder / "go").touch()
        self.assert_code(0, self.wait(job, 60), job)
        self.assert_prints(job, "attempt 1 ended: node3 was lost")
        self.assert_presentable(job)
        self.assert_nothing_left(10)

    def test_killed_front_end_is_not_waited_for(self):
        hosts = self.fresh_hosts(count=3)
        job = self.start_on(hosts, "--max_restarts", "2")
        job.signal(signal.SIGKILL)
        killed_at = time.time()
        self.wait(job, 10)
        # The ranks exit on SIGTERM.
        self.assert_nothing_left(2.5, since=killed_at)

    def test_remakes_rendezvous_connection_of_node(self):
        hosts = self.fresh_hosts(count=3)
        job = self.start_on(hosts)
        for _ in range(3):
            hosts.nodes[2].reset_connections(f"dst {hosts.nodes[0].address}")
            time.sleep(DEAD_S)
            self.assertTrue(job.running(), job.output)
        (self.folder / "go").touch()
        self.assert_code(0, self.wait(job, 60), job)
        self.assertNotIn("lost", job.output)
        logs = "".join(path.read_text() for path in self.folder.glob("logs/**/node1/agent.log"))
        # A busy machine may delay heartbeats and so cause one more reconnection.
        self.assertLessEqual(3, logs.count("node 2 is connected to the rendezvous again"), logs)
        self.assert_nothing_left(10)

    def test_node_that_cannot_reconnect_is_named(self):
        hosts = self.fresh_hosts()
        job = self.start_on(hosts)
        hosts.nodes[1].stop_sshd()
        hosts.nodes[1].reset_connections("sport = :22")
        self.assert_code(69, self.wait(job, 30), job)
        self.assert_prints(job, "node2 was lost: ")
        self.assertNotIn("node1 was lost", job.output)
        self.assert_nothing_left(10)


class Healed(PartitionCase):
    """Tests node 3 of 3, which is cut off until it is declared lost, and is then connected again."""

    def check(self, cut, heal, *options):
        hosts = self.fresh_hosts(count=3)
        node1, node2, node3 = hosts.nodes
        job = self.start_on(hosts, "--nnodes", "2:3", "--restart_delay_s", "0.1", *options)
        cut(node3)
        # The other two nodes continue without node 3.
        self.wait_for_files(job, "up.2.*", 4, timeout_s=30)
        heal(node3)
        # No process of the first attempt may be left on any host. Node 3 joins the second attempt only if it is
        # requested.
        wait_until(lambda: not any("1" in self.attempts(node) for node in hosts.nodes), 10, "the first attempt is over")
        self.assertIn("node3 was lost", job.output)
        return job, hosts

    def finish(self, job):
        (self.folder / "go").touch()
        self.assert_code(0, self.wait(job, 30), job)
        self.assert_presentable(job)
        self.assert_nothing_left(10)

    def check_is_out(self, cut, heal):
        job, hosts = self.check(cut, heal)
        for _ in range(10):
            self.assertEqual([{"2"}, {"2"}], [self.attempts(node) for node in hosts.nodes[:2]], job.output)
            self.assertEqual(set(), self.attempts(hosts.nodes[2]))
            time.sleep(0.3)
        self.finish(job)
        # Node 3 was notified that it is lost, and its messages since then were ignored.
        logs = "".join(path.read_text() for path in self.folder.glob("logs/**/node3/*.log"))
        self.assertRegex(logs, r"no longer part of the job|no heartbeat", "the agent's log on node 3")

    def test_node_that_could_not_send_stays_out(self):
        self.check_is_out(lambda node: node.cut_one_way("out"), lambda node: node.heal())

    def test_node_that_could_not_receive_stays_out(self):
        self.check_is_out(lambda node: node.cut_one_way("in"), lambda node: node.heal())

    def test_node_that_was_cut_off_stays_out(self):
        self.check_is_out(lambda node: node.link_down(), lambda node: node.link_up())

    def test_healed_node_joins_with_on_join_now(self):
        job, hosts = self.check(lambda node: node.link_down(), lambda node: node.link_up(), "--on_join", "now")
        self.wait_for_files(job, "up.3.*", 6, timeout_s=60)
        self.assertTrue(list(self.folder.glob("up.3.node3.*")), job.output)
        self.finish(job)
        self.assert_prints(job, r"node3 is connected again")


if __name__ == "__main__":
    main()
