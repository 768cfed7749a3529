"""Tests failures on two test hosts: exit code and summary must be right and in time, and no process may be left on
any host."""

import os
import signal
import sys
import time

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from hosts_case import AS_USER, HostsCase, main  # noqa: E402
from launcher_case import bash, seconds_since_written  # noqa: E402
from test_hosts import wait_until  # noqa: E402

HEEDS_TERM = """trap 'touch "$1/term.$RANK"; exit 0' TERM INT; touch "$1/up.$RANK"
                while :; do sleep 0.05; done"""
IGNORES_TERM = """trap '' TERM INT HUP; touch "$1/up.$RANK"; while :; do sleep 0.05; done"""
# Starts a child in its own session, which signals to the process group do not reach.
WITH_GRANDCHILD = "setsid sleep 300 </dev/null >/dev/null 2>&1 & " + HEEDS_TERM


class FaultCase(HostsCase):
    def start_ranks(self, script, *options):
        """Runs `script` in all ranks, with the test's folder as $1, and waits until all ranks are up. Returns the
        Job."""
        for path in self.folder.glob("up.*"):
            path.unlink()
        job = self.start(self.two_by_two(), *options, bash(script), "-", str(self.folder))
        self.wait_for_files(job, "up.*", 4)
        return job

    def rank_process(self, node, rank):
        found = [process for process in node.named("bash") if process.environ.get("RANK") == str(rank)]
        self.assertTrue(found, f"no rank {rank} on {node.name}")
        return min(found, key=lambda process: process.pid)


class Limits(FaultCase):
    def test_reports_low_limit_of_open_files(self):
        node1 = self.hosts.nodes[0]
        node1.write_file(".bashrc", "ulimit -n 30\n")
        self.addCleanup(node1.write_file, ".bashrc", "")
        code, job = self.run_job(self.two_by_two(), "true")
        self.assert_code(69, code, job)
        self.assert_prints(job, "node1: its limit of open files is 30")
        self.assertNotIn("firewall", job.output)
        self.assert_nothing_left(10)


class Ranks(FaultCase):
    def test_failed_rank_ends_job_within_2_s(self):
        script = """touch "$1/up.$RANK"; until [ -e "$1/go" ]; do sleep 0.02; done
                    [ $RANK != 3 ] || { touch "$1/failed"; exit 7; }; exec sleep 60"""
        job = self.start_ranks(script)
        (self.folder / "go").touch()
        self.assert_code(7, self.wait(job, 15), job)
        self.assertLess(seconds_since_written(self.folder / "failed", job.ended_at), 2, job.output)
        self.assert_prints(job, r"node2", r"rank 3\b", r"\b7\b")
        self.assert_presentable(job)
        self.assert_nothing_left(1)

    def test_killed_rank_ends_job_within_2_s(self):
        for node_index, rank in ((1, 2), (0, 1)):
            with self.subTest(rank=rank):
                job = self.start_ranks(HEEDS_TERM)
                node = self.hosts.nodes[node_index]
                begin = time.time()
                os.kill(self.rank_process(node, rank).pid, signal.SIGKILL)
                self.assert_code(137, self.wait(job, 15), job)
                self.assertLess(job.ended_at - begin, 2, job.output)
                self.assert_prints(job, node.name, rf"rank {rank}\b", "SIGKILL")
                self.assert_nothing_left(1)

    def test_kills_ranks_that_ignore_sigterm_after_grace(self):
        script = """trap '' TERM; touch "$1/up.$RANK"; until [ -e "$1/go" ]; do sleep 0.02; done
                    [ $RANK != 3 ] || { touch "$1/failed"; exit 7; }
                    while :; do sleep 0.05; done"""
        job = self.start_ranks(script, "--grace", "1")
        (self.folder / "go").touch()
        self.assert_code(7, self.wait(job, 15), job)
        self.assertLess(seconds_since_written(self.folder / "failed", job.ended_at), 1 + 2.5, job.output)
        self.assert_nothing_left(1)

    def test_grace_applies_to_grandchildren_too(self):
        script = "trap '' TERM; setsid sleep 300 </dev/null >/dev/null 2>&1 & " + IGNORES_TERM
        job = self.start_ranks(script, "--grace", "2")
        begin = time.time()
        job.signal(signal.SIGTERM)
        time.sleep(1)
        self.assertEqual(4, len([process for process in self.leftovers() if process.name == "sleep" and
                                 process.argv[1:] == ("300",)]), "the grace was not given")
        self.assert_nothing_left(2 + 1, since=begin)
        self.assert_code(143, self.wait(job, 5), job)


class Interrupted(FaultCase):
    def test_ctrl_c_ends_ranks_and_exits_130(self):
        job = self.start_ranks(WITH_GRANDCHILD)
        job.signal(signal.SIGINT)
        self.assert_code(130, self.wait(job, 8), job)
        self.assertEqual(4, len(list(self.folder.glob("term.*"))))
        self.assert_nothing_left(1)

    def test_second_ctrl_c_skips_grace(self):
        job = self.start_ranks(IGNORES_TERM, "--grace", "30")
        job.signal(signal.SIGINT)
        time.sleep(0.5)
        self.assertTrue(job.running(), job.output)
        job.signal(signal.SIGINT)
        self.assert_code(130, self.wait(job, 5), job)
        self.assert_nothing_left(1)

    def test_ctrl_c_while_connecting_leaves_no_process(self):
        for delay_s in (0.0, 0.05, 0.1, 0.2, 0.3, 0.5):
            with self.subTest(delay_s=delay_s):
                job = self.start(self.two_by_two(), "sleep", "60")
                time.sleep(delay_s)
                job.signal(signal.SIGINT)
                self.assert_code(130, self.wait(job, 8), job)
                self.assert_nothing_left(5)


class SuddenDeath(FaultCase):
    """Tests SIGKILL for each of dslaunch's own processes."""

    def test_kill_of_front_end_stops_ranks(self):
        job = self.start_ranks(WITH_GRANDCHILD)
        begin = time.time()
        job.signal(signal.SIGKILL)
        self.wait(job, 5)
        self.assert_nothing_left(5, since=begin)
        self.assertEqual(4, len(list(self.folder.glob("term.*"))), "not every rank got SIGTERM")

    def test_kill_of_front_end_stops_deaf_ranks(self):
        job = self.start_ranks(IGNORES_TERM, "--grace", "1")
        begin = time.time()
        job.signal(signal.SIGKILL)
        self.wait(job, 5)
        self.assert_nothing_left(1 + 5, since=begin)

    def kill_on(self, node_index, which):
        job = self.start_ranks(WITH_GRANDCHILD)
        node = self.hosts.nodes[node_index]
        supervisor, agent = self.supervisor_and_agent(node)
        begin = time.time()
        os.kill((supervisor if which == "supervisor" else agent).pid, signal.SIGKILL)
        self.assert_code(69, self.wait(job, 15), job)
        self.assert_prints(job, node.name)
        self.assert_presentable(job)
        self.assert_nothing_left(5, since=begin)

    def test_kill_of_agent_on_node1_loses_node(self):
        self.kill_on(0, "agent")  # the rendezvous runs in this agent, so it dies too

    def test_kill_of_agent_on_node2_loses_node(self):
        self.kill_on(1, "agent")

    def test_kill_of_supervisor_on_node1_loses_node(self):
        self.kill_on(0, "supervisor")

    def test_kill_of_supervisor_on_node2_loses_node(self):
        self.kill_on(1, "supervisor")

    def test_stopped_agent_counts_as_lost_node(self):
        job = self.start_ranks(HEEDS_TERM)
        _, agent = self.supervisor_and_agent(self.hosts.nodes[1])
        begin = time.time()
        os.kill(agent.pid, signal.SIGSTOP)
        self.assert_code(69, self.wait(job, 25), job)
        self.assertLess(job.ended_at - begin, 15)
        self.assert_nothing_left(5)

    def test_killed_sshd_loses_node_if_not_replaced(self):
        """The session's sshd is killed and not replaced, so the node reads end of file without a goodbye."""
        node = self.fresh_hosts(**self.host_options).nodes[1]
        job = self.start_ranks(HEEDS_TERM, "--ssh_command", "ssh")
        node.stop_sshd()
        for process in node.processes():
            if process.argv and process.argv[0].startswith("sshd: "):
                os.kill(process.pid, signal.SIGKILL)
        self.assert_code(69, self.wait(job, 30), job)
        self.assert_prints(job, "node2 was lost")
        self.assert_nothing_left(10)

    def test_kill_of_agent_stops_deaf_ranks(self):
        job = self.start_ranks(IGNORES_TERM, "--grace", "1")
        _, agent = self.supervisor_and_agent(self.hosts.nodes[1])
        begin = time.time()
        os.kill(agent.pid, signal.SIGKILL)
        self.assert_code(69, self.wait(job, 15), job)
        self.assert_nothing_left(1 + 5, since=begin)


class RanksOfAUser(Ranks):
    host_options = AS_USER


class SuddenDeathForAUser(SuddenDeath):
    host_options = AS_USER


class LostHost(FaultCase):
    """Tests hosts that become silent. No end of file arrives anywhere, so only missing heartbeats (6 s) show the
    loss."""

    def has_no_ranks(self, node):
        return not [process for process in node.processes() if process.environ.get("RANK")]

    def check(self, lost, others):
        """Checks from the moment when `lost` becomes silent that the ranks of `others` end soon and that the job ends
        in time."""
        silent_at = time.time()
        for node in others:
            wait_until(lambda node=node: self.has_no_ranks(node), 12, f"{node.name} without ranks")
        self.assert_code(69, self.wait(self.last_job, 60), self.last_job)
        self.assertLess(self.last_job.ended_at - silent_at, 20, self.last_job.output)
        self.assert_prints(self.last_job, lost.name)
        self.assert_presentable(self.last_job)

    def test_power_cut_of_node1_ends_job(self):
        node1, node2 = self.fresh_hosts().nodes
        self.start_ranks(HEEDS_TERM, "--grace", "1")
        node1.power_cut()
        self.check(node1, [node2])
        self.assert_nothing_left(5)

    def test_power_cut_of_node2_ends_job(self):
        node1, node2 = self.fresh_hosts().nodes
        self.start_ranks(HEEDS_TERM, "--grace", "1")
        node2.power_cut()
        self.check(node2, [node1])
        self.assert_nothing_left(5)

    def test_pulled_cable_ends_ranks_of_both_nodes(self):
        # Node 2 still runs but receives no messages, so it must detect the loss by itself.
        node1, node2 = self.fresh_hosts().nodes
        self.start_ranks(HEEDS_TERM, "--grace", "1")
        node2.link_down()
        self.check(node2, [node1, node2])
        self.assertEqual([], list(map(str, node1.processes())))
        # Node 2's supervisor and agent wait for the front end for a limited time.
        wait_until(lambda: not [process for process in node2.processes() if "supervisor" in process.argv],
                   45, "node2 without supervisor and agent")


if __name__ == "__main__":
    main()
