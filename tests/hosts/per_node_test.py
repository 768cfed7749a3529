"""Tests one command on each of two test hosts, as with torchrun and `deepspeed --no_ssh`. No sshd is needed."""

import pathlib
import re
import subprocess
import sys
import time

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from hosts_case import ORACLE_PYTHON, HostsCase, main  # noqa: E402
from launcher_case import DSLAUNCH, Job, bash  # noqa: E402

SCRIPT = pathlib.Path(__file__).with_name("ddp_script.py")
TOKEN = "7d0f5c1be9a24863b1d7f02c95ae6e38"
PLACE = 'echo "rank=$RANK world=$WORLD_SIZE host=$(hostname) at=$MASTER_ADDR."'
WAITS = 'touch "$FOLDER/up.$RANK"; while :; do sleep 0.05; done'


class PerNodeCase(HostsCase):
    def setUp(self):
        super().setUp()
        for node in self.hosts.nodes:
            node.stop_sshd()

    def on(self, node, *arguments, trust=None):
        if trust is None:
            trust = ["--rdzv_token_file", node.write_file("token", TOKEN, mode=0o600)]
        argv = [str(word) for words in ([DSLAUNCH], trust, *arguments)
                for word in (words if isinstance(words, list) else [words])]
        job = Job(lambda **files: node.popen(argv, {"FOLDER": str(self.folder)}, str(self.folder),
                                             stdin=subprocess.DEVNULL, **files), self.folder)
        self.last_job = job
        return job

    def on_all(self, *arguments, trust=None):
        """Runs the same command on every host, with {rank} replaced by the host's node rank; returns the Jobs."""
        return [self.on(node, *[[str(word).replace("{rank}", str(rank)) for word in
                                 (words if isinstance(words, list) else [words])] for words in arguments], trust=trust)
                for rank, node in enumerate(self.hosts.nodes)]

    def torchrun(self, *arguments, endpoint="node1:29500", trust=None):
        return self.on_all(["--nnodes", "2", "--node-rank", "{rank}", "--nproc-per-node", "2",
                            "--rdzv-endpoint", endpoint], *arguments, trust=trust)

    def end_with(self, code, *jobs, timeout_s=60):
        for job in jobs:
            self.assert_code(code, self.wait(job, timeout_s), job)
            self.assert_presentable(job)
        self.assert_nothing_left()

    def assert_two_by_two(self, jobs, addresses):
        self.end_with(0, *jobs)
        found = re.findall(r"rank=(\d) world=4 host=(\w+) at=(\S+)\.", "".join(job.stdout for job in jobs))
        self.assertEqual([("0", "node1"), ("1", "node1"), ("2", "node2"), ("3", "node2")],
                         sorted(row[:2] for row in found), "".join(job.output for job in jobs))
        self.assertEqual(1, len({row[2] for row in found}))
        self.assertIn(found[0][2], addresses)


class TwoHosts(PerNodeCase):
    def test_torchrun_with_node_ranks_forms_one_job(self):
        # On node1 itself, the name node1 resolves to 127.0.1.1, which node2 cannot use.
        self.assert_two_by_two(self.torchrun("--show", "all", bash(PLACE)), ("10.66.0.1", "fd66::1"))

    def test_missing_token_starts_no_program(self):
        for job in self.torchrun(bash('touch "$FOLDER/up"'), trust=[]):
            self.assert_code(64, self.wait(job, 20), job)
            self.assert_prints(job, "node 0 at node1:29500: without a token", r"openssl rand -hex 32 > FILE",
                               "add --rdzv_token_file FILE to each node's command", "add --insecure_rdzv instead")
        self.assertFalse((self.folder / "up").exists(), "a program was started")
        self.assert_nothing_left()

    def test_insecure_rdzv_needs_no_token(self):
        jobs = self.torchrun("--show", "all", bash(PLACE), trust=["--insecure_rdzv"])
        self.assert_two_by_two(jobs, ("10.66.0.1", "fd66::1"))

    def test_torchrun_assigns_node_ranks_on_arrival(self):
        jobs = self.on_all(["--nnodes=2", "--nproc_per_node=2", "--rdzv-backend=c10d", "--rdzv-endpoint=node1",
                            "--rdzv-id=job7", "--show", "all"], bash(PLACE))
        self.assert_two_by_two(jobs, ("10.66.0.1", "fd66::1"))

    def test_deepspeed_no_ssh_forms_one_job(self):
        for node in self.hosts.nodes:
            node.write_file("hosts", "node1 slots=2\nnode2 slots=2\n")
        jobs = [self.on(node, ["--hostfile", f"{node.home}/hosts", "--no_ssh", "--node_rank", rank, "--master_addr",
                               "node1", "--master_port", "29600", "--show", "all"], bash(PLACE))
                for rank, node in enumerate(self.hosts.nodes)]
        self.assert_two_by_two(jobs, ("node1",))  # the value of --master_addr

    def test_ipv6_endpoint_forms_one_job(self):
        self.assert_two_by_two(self.torchrun("--show", "all", bash(PLACE), endpoint="[fd66::1]:29500"),
                               ("10.66.0.1", "fd66::1"))

    def test_ddp_script_trains(self):
        if not ORACLE_PYTHON.exists():
            self.fail(f"{ORACLE_PYTHON} is missing; packaging/fetch-oracle makes it")
        jobs = self.torchrun(ORACLE_PYTHON, SCRIPT)
        self.end_with(0, *jobs, timeout_s=150)
        self.assert_prints(jobs[0], r"\[node0:0\] world 4 hosts \['node1', 'node2'\] same weights True loss fell True")


class Lost(PerNodeCase):
    def setUp(self):
        super().setUp()
        self.fresh_hosts()

    def running(self):
        jobs = self.torchrun("--nproc-per-node", "1", bash(WAITS))
        self.wait_for_files(jobs[0], "up.*", 2)
        return jobs

    def test_power_cut_of_node_0_ends_other_command(self):
        jobs = self.running()
        self.hosts.nodes[0].power_cut()
        begin = time.monotonic()
        self.assert_code(69, self.wait(jobs[1], 40), jobs[1])
        self.assert_prints(jobs[1], "node 0 .* was lost")
        self.assertLess(time.monotonic() - begin, 30)
        self.assert_nothing_left()

    def test_power_cut_of_other_node_ends_job(self):
        jobs = self.running()
        self.hosts.nodes[1].power_cut()
        self.assert_code(69, self.wait(jobs[0], 40), jobs[0])
        self.assert_prints(jobs[0], "node1 was lost")
        self.assert_nothing_left()

    def test_pulled_cable_ends_both_commands(self):
        jobs = self.running()
        self.hosts.nodes[1].link_down()
        for job in jobs:
            self.assert_code(69, self.wait(job, 60), job)
        self.assert_prints(jobs[0], "node1 was lost")
        self.assert_prints(jobs[1], "node 0 .* was lost")
        self.assert_nothing_left()


if __name__ == "__main__":
    main()
