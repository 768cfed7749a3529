"""Tests jobs on nodes that are reached by --exec_command, with nsenter in place of kubectl exec or docker exec.

dslaunch runs outside of the test hosts' namespaces. So, as with containers, it is connected to a node only by the
command's stdin and stdout.
"""

import json
import os
import re
import signal
import sys
import time

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from hosts_case import OutsideCase, main  # noqa: E402
from launcher_case import LauncherCase, bash  # noqa: E402

# All test hosts share the machine's /tmp, so ranks create their ready files in a folder there.
WAITING_RANKS = ': > "$1/up.$RANK"; exec sleep 60'


class ExecCommand(OutsideCase):
    def setUp(self):
        super().setUp()
        self.hostfile = self.folder / "hostfile"
        self.hostfile.write_text("node1 slots=2\nnode2 slots=2\n")

    def job(self, *more):
        return ["--hostfile", self.hostfile, "--exec_command", f"{self.enter} {{node}}", "--chdir", "/", *more]

    def test_ranks_run_on_their_nodes(self):
        code, job = self.run_job(self.job("--show", "all"), bash('echo "$RANK of $WORLD_SIZE on $(hostname) at $MASTER_ADDR"'))
        self.assert_code(0, code, job)
        found = sorted(re.findall(r"(\d) of 4 on (\w+) at (\S+)", job.stdout))
        self.assertEqual([("0", "node1"), ("1", "node1"), ("2", "node2"), ("3", "node2")],
                         [row[:2] for row in found], job.output)
        self.assertIn({row[2] for row in found}.pop(), ("10.66.0.1", "fd66::1"))
        self.assert_prints(job, r"4 ranks \(enter, cpu\): node1 node2")
        self.assert_nothing_left()

    def test_index_is_number_of_node_in_job(self):
        self.hostfile.write_text("left_out slots=1\nfirst slots=1\nsecond slots=1\n")
        by_number = self.folder / "by-number"  # takes a node's number, as flux exec -r N does
        by_number.write_text(f'#!/bin/sh\nnumber=$1; shift\nexec {self.enter} "node$((number + 1))" "$@"\n')
        by_number.chmod(0o755)
        code, job = self.run_job("--hostfile", self.hostfile, "--exclude", "left_out", "--exec_command", f"{by_number} {{index}}",
                                 "--chdir", "/", "--show", "all", bash('echo "$RANK on $(hostname)"'))
        self.assert_code(0, code, job)
        self.assertEqual([("0", "node1"), ("1", "node2")], sorted(re.findall(r"(\d) on (\w+)", job.stdout)), job.output)
        _, ps = self.run_job("ps", "--all", "--json")
        code, logs = self.run_job("logs", json.loads(ps.stdout)[-1]["job"], "--rank", "1")
        self.assert_code(0, code, logs)
        self.assertIn("1 on node2", logs.output)
        self.assert_nothing_left()

    def test_reports_failed_rank_as_first_cause(self):
        code, job = self.run_job(self.job(), bash('[ $RANK != 3 ] || exit 7; exec sleep 60'))
        self.assert_code(7, code, job)
        self.assert_prints(job, r"rank 3 \(node2, local rank 1\) exited with code 7")
        self.assert_nothing_left()

    def test_killed_agent_counts_as_lost_node(self):
        job = self.start(self.job(), bash(WAITING_RANKS), "-", self.folder)
        self.wait_for_files(job, "up.*", 4)
        _, agent = self.supervisor_and_agent(self.hosts.nodes[1])
        os.kill(agent.pid, signal.SIGKILL)
        self.assert_code(69, self.wait(job), job)
        self.assert_prints(job, r"node2")
        self.assert_nothing_left(within_s=10)

    def test_killed_dslaunch_leaves_no_process(self):
        job = self.start(self.job(), bash(WAITING_RANKS), "-", self.folder)
        self.wait_for_files(job, "up.*", 4)
        job.signal(signal.SIGKILL)
        killed_at = time.time()
        self.wait(job)
        self.assert_nothing_left(within_s=20, since=killed_at)

    def test_reports_unreachable_node(self):
        self.hostfile.write_text("node1 slots=2\nnode9 slots=2\n")
        code, job = self.run_job(self.job(), "true")
        self.assert_code(69, code, job)
        self.assert_prints(job, r"node9.* by enter.*exit status 3", r"enter: no node node9", r"compare with \S*enter node9 true")
        self.assert_nothing_left()


class WrongExecCommand(LauncherCase):
    def test_rejects_wrong_use_before_start(self):
        hostfile = self.folder / "hostfile"
        hostfile.write_text("node1 slots=1\n")
        with_port = self.folder / "with_port"
        with_port.write_text("node1:22 slots=1\n")
        for given, why in (
                (["--hostfile", hostfile, "--exec_command", "env"], r"put \{node\} where its name belongs"),
                (["--hostfile", hostfile, "--exec_command", "env {node} {pod}"], r"\{pod\} is not known"),
                (["--hostfile", hostfile, "--exec_command", "no-such-program {node}"], "no program 'no-such-program' in PATH"),
                (["--hostfile", with_port, "--exec_command", "env {node}"], r"node1:22 has port 22 \(\S*with_port:1\)"),
                (["--exec_command", "env {node}"], r"--exec_command needs to know the nodes: add --hostfile"),
                (["--exec_command", "env {node}", "--ssh_port", "22"], r"--exec_command.*--ssh_port|--ssh_port.*--exec_command"),
                (["--exec_command", ""], "needs a value that is not empty")):
            with self.subTest(given=given):
                code, job = self.run_job(given, "true")
                self.assert_code(64, code, job)
                self.assert_prints(job, why)


if __name__ == "__main__":
    main()
