"""Tests nodes behind other hosts (ProxyJump) and nodes that never answer. Failures must name the host within the
time limit."""

import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from hosts_case import main  # noqa: E402
from ssh_case import NO_PERMISSION, RANKS, UNAVAILABLE, SshCase  # noqa: E402


class SixteenBehindABastion(SshCase):
    # With one home, the agent is copied only once. sshd drops half of the logins while 4 are pending, and all logins
    # while 10 are.
    host_options = {"count": 16, "shared_home": True, "bastion": {"MaxStartups": "4:50:10"}}

    def test_all_nodes_log_in_despite_max_startups(self):
        names = [node.name for node in self.hosts.nodes]
        for node in self.hosts.nodes:
            node.refuse_ssh_from(self.front)
        direct = self.front.run(["ssh", "-o", "ConnectTimeout=1", "-o", "BatchMode=yes", names[0], "true"])
        self.assertEqual(255, direct.returncode, "there is another way than the bastion: this test shows nothing")
        self.configure("Host node*\n  ProxyJump bastion\n")
        for round_number, nodes in enumerate([names[:1], names, names]):
            code, job, seconds = self.job_on(nodes)
            self.assert_code(0, code, job)
            self.assertEqual(len(nodes), self.ranks_started())
            self.assert_nothing_left()
            dropped = self.hosts.bastion.sshd_log().count("drop connection")
            print(f"round {round_number}: {len(nodes)} nodes in {seconds:.1f} s, {dropped} logins dropped so far")


class Hops(SshCase):
    host_options = {"count": 3, "bastion": {}}

    def setUp(self):
        super().setUp()
        self.addCleanup(self.hosts.trust_all)

    def test_uses_hops_in_order(self):
        for node in self.hosts.nodes[1:]:
            node.refuse_ssh_from(self.front)
        node3 = self.hosts.nodes[2]
        node3.refuse_ssh_from(self.hosts.bastion)
        for node in self.hosts.nodes[1:]:
            self.addCleanup(node.forget_refusals)
        self.configure("Host node2 node3\n  ProxyJump bastion\nHost node3-far\n  HostName node3\n"
                       "  ProxyJump bastion,node2\n")
        code, job, _ = self.job_on(["node3-far"])
        self.assert_code(0, code, job)
        self.assertEqual(1, self.ranks_started())
        # In the reverse order, no hop can connect to the next.
        self.configure("Host node2\n  ProxyJump none\nHost node3\n  ProxyJump node2,bastion\n")
        self.refused(UNAVAILABLE, ["node3"], "--connect_timeout", "4", says=["node3", "node2"])

    def test_reports_hop_that_is_down(self):
        self.configure("Host gate\n  HostName 10.66.0.99\nHost node1\n  ProxyJump gate\n")
        self.refused(UNAVAILABLE, ["node1", "node2"], says=[r"node1.*host 'gate' on the way.*10\.66\.0\.99.*No route"])

    def test_reports_hop_without_sshd(self):
        self.configure("Host node1\n  ProxyJump bastion:2222\n")
        self.refused(UNAVAILABLE, ["node1"], says=[r"node1.*host 'bastion' on the way.*2222.*refused"])

    def test_reports_hop_with_unknown_host_key(self):
        self.hosts.set_known_hosts([self.hosts.known_hosts[name] for name in ("node1", "node2", "bastion")])
        self.configure("Host node1\n  ProxyJump bastion,node3\n")
        self.refused(NO_PERMISSION, ["node1"], says=["node1.*host 'node3' on the way.*host key.*known_hosts"])

    def test_reports_target_that_hop_cannot_reach(self):
        self.configure("Host far\n  HostName 10.66.0.98\n  ProxyJump bastion\n")
        self.refused(UNAVAILABLE, ["far"],
                     says=["far.*host 'bastion' on the way.*cannot connect to 10.66.0.98 port 22"])

    def test_rejects_jump_loop(self):
        self.configure("Host *\n  ProxyJump bastion\n")
        self.refused(65, ["node1"], says=["jumphost loop via bastion"])

    def test_groups_nodes_with_the_same_failure(self):
        self.configure("Host node*\n  ProxyJump bastion:2222\n")
        job, _ = self.refused(UNAVAILABLE, ["node1", "node2", "node3"],
                              says=[r"node1, node2, node3 \(3 nodes\).*refused"])
        self.assertLessEqual(len(job.stderr.strip().splitlines()), 3, job.stderr)

    def test_writes_accepted_host_key_once(self):
        self.hosts.set_known_hosts([self.hosts.known_hosts[name] for name in ("node1", "node2", "node3")])
        self.configure("Host bastion\n  StrictHostKeyChecking accept-new\nHost node*\n  ProxyJump bastion\n")
        code, job, _ = self.job_on(["node1", "node2", "node3"])
        self.assert_code(0, code, job)
        self.assertEqual(1, self.front.read_file(".ssh/known_hosts").count("bastion "))


class SilentHosts(SshCase):
    host_options = {"count": 4}

    def setUp(self):
        super().setUp()
        self.node1, self.node2, self.node3, self.node4 = self.hosts.nodes
        self.bring_agents()

    def test_reports_silent_hosts_in_time_and_tries_others(self):
        self.be_silent(self.node3, range(2201, 2213))
        silent = [f"node3:{port}" for port in range(2201, 2213)]
        # Silent hosts must not use up all turns, because otherwise node1 and node2 would get none.
        job, seconds = self.refused(UNAVAILABLE, [*silent, "node1", "node2"], "--connect_timeout", "4",
                                    says=[r"node3:2201.*\(12 nodes\).*SSH handshake in time"])
        self.assertLess(seconds, 4 + 3)
        self.assertNotIn("node1", job.stderr)
        for node in (self.node1, self.node2):
            self.assertIn("Accepted publickey", node.sshd_log())

    def test_job_starts_without_optional_silent_node(self):
        self.be_silent(self.node3, [2201])
        hosts = self.hostfile(["node1", "node2", "node3:2201"])
        code, job = self.run_job("--hostfile", hosts, "--nnodes", "2:3", "--num_gpus", "1", "--connect_timeout", "3",
                                 [*RANKS, str(self.folder)], timeout_s=40)
        self.assert_code(0, code, job)
        self.assert_prints(job, "node3:2201.*in time.*; starting without node3:2201")

    def test_reports_silent_bastion(self):
        self.be_silent(self.node3, [2201])
        self.configure("Host node1 node2\n  ProxyJump node3:2201\n")
        _, seconds = self.refused(UNAVAILABLE, ["node1", "node2"], "--connect_timeout", "3",
                                  says=[r"node1, node2 \(2 nodes\).*host 'node3' on the way.*handshake in time"])
        self.assertLess(seconds, 3 + 3)

    def test_login_failure_ends_wait_for_silent_node(self):
        self.be_silent(self.node3, [2201])
        keys = self.node2.read_file(".ssh/authorized_keys")
        for node in (self.node2, self.node4):
            node.write_file(".ssh/authorized_keys", "", 0o600)
            self.addCleanup(node.write_file, ".ssh/authorized_keys", keys, 0o600)
        _, seconds = self.refused(NO_PERMISSION, ["node1", "node2", "node3:2201", "node4"], "--connect_timeout", "15",
                                  says=[r"node2, node4 \(2 nodes\).*login refused",
                                        r"no answer so far from.*node3:2201 \(1 node\)"])
        self.assertLess(seconds, 6)


if __name__ == "__main__":
    main()
