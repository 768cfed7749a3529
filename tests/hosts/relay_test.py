"""Tests nine test hosts behind three relays. dslaunch must hold three connections and behave as with nine, even when
a connection breaks."""

import os
import pathlib
import signal
import sys
import time

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from hosts_case import AGENT, HostsCase, main  # noqa: E402
from launcher_case import bash  # noqa: E402
from test_hosts import children_of, wait_until  # noqa: E402

FULL = os.environ.get("DSLAUNCH_TEST_FULL") == "1"
NODES, FANOUT = 9, 3
WAITING_RANKS = 'touch "$1/up.$DSLAUNCH_ATTEMPT.$RANK"; until [ -e "$1/go" ]; do sleep 0.1; done'


class RelayCase(HostsCase):
    host_options = {"count": NODES, "nodes_log_in": True, "agent": AGENT}
    fanout = FANOUT

    def by_relays(self, *options, slots=1):
        return ["--hostfile", self.hosts.hostfile(slots=slots), "--fanout", str(self.fanout), *options]

    def start_waiting(self, *options, ranks=NODES):
        job = self.start(self.by_relays("--grace", "1", *options), bash(WAITING_RANKS), "-", self.folder)
        self.wait_for_files(job, "up.1.*", ranks, timeout_s=60)
        return job

    def relays(self):
        """Returns {node: process of the relay that runs on it}."""
        return {node: process for node in self.hosts.nodes for process in node.processes()
                if process.comm == "dslaunch-relay"}

    def group_of(self, node):
        first = self.hosts.nodes.index(node) // self.fanout * self.fanout
        return self.hosts.nodes[first:first + self.fanout]

    def ranks_that_live(self):
        """Returns the numbers of the ranks that run. A rank may have several processes, because bash forks before it
        runs `sleep`."""
        found = (process.environ.get("RANK") for node in self.hosts.nodes for process in node.processes())
        return {int(rank) for rank in found if rank}


def links_of(pid):
    """Returns the local addresses of connections to any sshd, from the host of the process `pid`."""
    rows = [line.split() for family in ("tcp", "tcp6")
            for line in pathlib.Path(f"/proc/{pid}/net/{family}").read_text().splitlines()[1:]]
    return [row[2] for row in rows if row[3] == "01" and row[2].endswith(":0016")]


class Relays(RelayCase):
    def test_jobs_of_every_size_run_on_their_nodes(self):
        for size in range(1, NODES + 1) if FULL else (1, 2, 4, 9):
            code, job = self.run_job(self.by_relays("--num_nodes", str(size), "--show", "all"),
                                     bash('echo "rank $RANK on $(hostname)"'))
            self.assert_code(0, code, job)
            for rank in range(size):
                self.assert_prints(job, rf"rank {rank} on node{rank + 1}\b")
            self.assert_nothing_left()

    def test_front_end_connects_to_relays_only(self):
        job = self.start_waiting()
        self.assertEqual(NODES // FANOUT, len(links_of(job.pid)))
        relays = self.relays()
        self.assertEqual([0, 1, 2], sorted(self.hosts.nodes.index(node) // FANOUT for node in relays))
        (self.folder / "go").touch()
        self.assert_code(0, self.wait(job), job)
        self.assert_nothing_left()

    def test_relays_copy_agent_to_nodes_that_lack_it(self):
        for node in self.hosts.nodes:
            node.run(["rm", "-rf", f"{node.home}/.cache/dslaunch"])

        def sent_bytes(host):
            return int(host.run(["cat", "/sys/class/net/eth0/statistics/tx_bytes"]).stdout)
        before = sent_bytes(self.front)
        code, job = self.run_job(self.by_relays(), "true", timeout_s=120)
        self.assert_code(0, code, job)
        agents = {node.run(["sh", "-c", f"stat -c '%a %s' {node.home}/.cache/dslaunch/agent-*"]).stdout.strip()
                  for node in self.hosts.nodes}
        self.assertEqual(1, len(agents), agents)
        mode, size = agents.pop().split()
        self.assertEqual("700", mode)
        self.assertLess(sent_bytes(self.front) - before, (NODES // FANOUT + 1) * int(size))
        self.assert_nothing_left()

    def test_reports_failed_rank_behind_relay(self):
        code, job = self.run_job(self.by_relays(), bash('[ $RANK != 5 ] || exit 7; exec sleep 60'))
        self.assert_code(7, code, job)
        self.assert_prints(job, r"rank 5 \(node6, local rank 0\) exited with code 7")
        self.assert_nothing_left(within_s=10)

    def test_killed_front_end_leaves_no_process(self):
        job = self.start_waiting()
        os.kill(job.pid, signal.SIGKILL)
        self.wait(job)
        self.assert_nothing_left(within_s=20)

    def test_detached_job_keeps_no_relay(self):
        code, job = self.run_job(self.by_relays("--detach"), bash(WAITING_RANKS), "-", self.folder)
        self.assert_code(0, code, job)
        self.wait_for_files(job, "up.1.*", NODES)
        wait_until(lambda: not self.relays(), 10, "relays are gone")
        self.assertEqual(set(range(NODES)), self.ranks_that_live())
        code, stop = self.run_job("stop", job.stdout.strip())
        self.assert_code(0, code, stop)
        self.assert_nothing_left(within_s=10)

    def test_rejects_fanout_with_local_launcher(self):
        code, job = self.run_job("--launcher", "local", "--fanout", "3", "true")
        self.assert_code(64, code, job)
        self.assert_prints(job, "--fanout: relays are for nodes that are reached over SSH")


class BadHosts(RelayCase):
    """Tests a group in which one node fails. No other node may be blamed."""

    def assert_blamed(self, node, pattern, code):
        found, job = self.run_job(self.by_relays("--connect_timeout", "12"), "true")
        self.assert_code(code, found, job)
        self.assert_prints(job, rf"{node.name}\b.*{pattern}")
        for other in self.hosts.nodes:
            if other is not node:
                self.assertNotRegex(job.output, rf"node '{other.name}'")
        self.assert_nothing_left(within_s=10)

    def test_blames_only_node_that_is_down(self):
        node = self.hosts.nodes[4]
        node.link_down()
        self.addCleanup(node.link_up)
        self.assert_blamed(node, "", 69)

    def test_blames_only_node_with_slow_sshd(self):
        node = self.hosts.nodes[4]
        node.hold_sshd()
        self.addCleanup(node.release_sshd)
        self.assert_blamed(node, "", 69)

    def test_blames_only_node_with_other_host_key(self):
        node = self.hosts.nodes[4]
        lines = {**self.hosts.known_hosts, node.name: self.hosts.other_key_line(node.name)}
        for host in self.everyone:
            before = host.read_file(".ssh/known_hosts")
            host.write_file(".ssh/known_hosts", "".join(line + "\n" for line in lines.values()))
            self.addCleanup(host.write_file, ".ssh/known_hosts", before)
        self.assert_blamed(node, "key", 77)

    def test_hints_at_fanout_0_if_nodes_cannot_log_in(self):
        for node in self.hosts.nodes:
            key = node.read_file(".ssh/id_ed25519")
            node.run(["rm", f"{node.home}/.ssh/id_ed25519"])
            self.addCleanup(node.write_file, ".ssh/id_ed25519", key, 0o600)
        code, job = self.run_job(self.by_relays(), "true")
        self.assert_code(77, code, job)
        self.assert_prints(job, "Permission denied.*--fanout 0 reaches each from here")
        self.assert_nothing_left(within_s=10)
        code, job = self.run_job("--hostfile", self.hosts.hostfile(slots=1), "--fanout", "0", "true")
        self.assert_code(0, code, job)


class RelayLossCase(RelayCase):
    def relay_of(self, index):
        """Returns (node, process) of the relay that connects the node's group. A node that logged in too late is a
        relay for itself alone, so the relay with most children is chosen."""
        found = [(node, process) for node, process in self.relays().items()
                 if node in self.group_of(self.hosts.nodes[index])]
        return max(found, key=lambda one: len(children_of(one[1].pid)))

    def kill_relay(self, index):
        node, process = self.relay_of(index)
        os.kill(process.pid, signal.SIGKILL)
        return node


class BrokenConnections(RelayLossCase):
    """Tests one broken connection. As without relays, nothing may be lost."""

    def check_nothing_is_lost(self, broken, ranks=NODES):
        job = self.start_waiting(ranks=ranks)
        for node in broken():
            self.wait_for_output(job, rf"the connections? to .*{node.name}\b.* broke and w\w+ made again; nothing was lost")
        (self.folder / "go").touch()
        self.assert_code(0, self.wait(job), job)
        self.assertNotIn("lost:", job.output)
        self.assert_prints(job, f"{NODES} ranks on {NODES} nodes succeeded")
        self.assert_nothing_left(within_s=10)

    def reset_to_relay(self, index):
        node, _ = self.relay_of(index)
        node.reset_connections("sport = :22")
        return self.group_of(node)

    def test_resumes_after_reset_of_connection_to_relay(self):
        self.check_nothing_is_lost(lambda: self.reset_to_relay(-1))

    def test_resumes_after_reset_with_fanout_of_all_nodes(self):
        self.fanout = NODES

        def reset():
            self.assertEqual(2, len(self.relays()))
            self.fanout = (NODES + 1) // 2  # the fanout that is used instead
            return self.reset_to_relay(0)
        self.check_nothing_is_lost(reset)

    def test_resumes_after_reset_of_connection_from_relay(self):
        def reset():
            relay, _ = self.relay_of(-1)
            node = next(node for node in self.group_of(relay) if node is not relay)
            node.reset_connections("sport = :22")
            return [node]
        self.check_nothing_is_lost(reset)

    def test_resumes_through_another_relay_after_kill(self):
        self.check_nothing_is_lost(lambda: self.group_of(self.kill_relay(-1)))


class LossOfARelay(RelayLossCase):
    """Tests the loss of a relay whose nodes cannot be reached again in time, so that they are lost."""
    RESTARTS = ("--max_restarts", "2", "--dead_s", "3", "--suspect_s", "2", "--heartbeat_s", "0.5")
    RESUMED_WITHIN_S = 4

    def lose_relay(self, index):
        relay, _ = self.relay_of(index)
        group = self.group_of(relay)
        for node in group:
            node.hold_sshd()
        try:
            self.kill_relay(index)
            time.sleep(self.RESUMED_WITHIN_S + 1)
        finally:
            for node in group:
                node.release_sshd()
        return relay

    def leftovers(self):
        # The sshd of a client that has lost its power still waits for it. No other process may be left.
        return [process for process in super().leftovers() if process.comm != "sshd"]

    def test_loss_of_relay_ends_job(self):
        job = self.start_waiting()
        node = self.lose_relay(0)
        self.assert_code(69, self.wait(job), job)
        self.assert_prints(job, "|".join(rf"{other.name} was lost" for other in self.group_of(node)))
        self.assert_prints(job, rf"the connection to the relay on {node.name} broke")
        self.assert_nothing_left(within_s=10)

    def test_job_restarts_through_new_relay(self):
        job = self.start_waiting(*self.RESTARTS)
        self.lose_relay(-1)
        self.wait_for_files(job, "up.2.*", NODES, timeout_s=60)
        (self.folder / "go").touch()
        self.assert_code(0, self.wait(job), job)
        self.assert_prints(job, f"{NODES} ranks on {NODES} nodes succeeded")
        self.assert_nothing_left(within_s=10)

    def test_job_restarts_with_another_rendezvous_host(self):
        job = self.start_waiting(*self.RESTARTS)
        node = self.lose_relay(0)
        # This must happen well before the lease expires. The lost rendezvous may have begun attempts, so any attempt
        # number is accepted.
        self.wait_for_files(job, "up.*", 2 * NODES, timeout_s=40)
        (self.folder / "go").touch()
        self.assert_code(0, self.wait(job), job)
        self.assert_prints(job, r"attempt 1 ended: node1 was lost: .*; node\d hosts the rendezvous from now on")
        self.assert_prints(job, f"{NODES} ranks on {NODES} nodes succeeded")
        for other in self.group_of(node):
            self.assert_prints(job, f"{other.name} was lost: the connection to the relay on {node.name} broke")
        self.assert_nothing_left(within_s=10)

    def test_power_cut_of_relay_ends_job(self):
        hosts = self.fresh_hosts(**self.host_options)
        job = self.start_waiting("--lease_s", "8", "--dead_s", "3", "--suspect_s", "2", "--heartbeat_s", "0.5")
        node, _ = self.relay_of(-1)
        node.power_cut()
        hosts.nodes.remove(node)
        lost_at = time.time()
        self.assertNotEqual(0, self.wait(job, 90), job.output)
        self.assert_nothing_left(within_s=60, since=lost_at)

    def test_job_restarts_on_remaining_nodes(self):
        hosts = self.fresh_hosts(**self.host_options)
        job = self.start_waiting(*self.RESTARTS, "--lease_s", "8", "--nnodes", f"{NODES - FANOUT}:{NODES}")
        node, _ = self.relay_of(0)
        group = self.group_of(node)
        node.power_cut()
        hosts.nodes.remove(node)
        lost_at = time.time()
        # If the relay is not on node1, the loss of its group's other nodes is not detected at once. So an attempt may
        # still begin on them.
        gone = ", ".join(node.name for node in group)
        wait_until(lambda: f"get ranks; without {gone}" in job.output, 90, f"an attempt without {gone}")
        (self.folder / "go").touch()
        self.assert_code(0, self.wait(job), job)
        self.assert_prints(job, f"attempt 1 ended: {node.name} was lost")
        self.assert_nothing_left(within_s=60, since=lost_at)


if __name__ == "__main__":
    main()
