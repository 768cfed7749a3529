"""Tests nodes that cannot be used: a short message must name the node, the exit code must be the documented one, and
no program may start."""

import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from hosts_case import HostsCase, main  # noqa: E402
from launcher_case import bash  # noqa: E402

UNAVAILABLE, NO_PERMISSION, NOT_FOUND = 69, 77, 127


class SshErrors(HostsCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(self.hosts.trust_all)

    def refused(self, code_expected, says, hostfile=None, program=None, options=(), timeout_s=30):
        program = program or [*bash('touch "$1/started.$RANK"'), "-", str(self.folder)]
        code, job = self.run_job(self.two_by_two(hostfile), *options, program, timeout_s=timeout_s)
        self.assert_code(code_expected, code, job)
        self.assert_presentable(job)
        for pattern in says:
            self.assertRegex(job.stderr, pattern)
        self.assertLessEqual(len(job.stderr.strip().splitlines()), 10, job.stderr)
        self.assertEqual([], list(self.folder.glob("started.*")), "a program was started")
        self.assert_nothing_left()
        return job

    def test_reports_host_name_that_does_not_exist(self):
        self.refused(UNAVAILABLE, ["no-such-host"], "node1 slots=2\nno-such-host slots=2\n")

    def test_reports_address_without_host(self):
        self.refused(UNAVAILABLE, [r"10\.66\.0\.99"], "node1 slots=2\n10.66.0.99 slots=2\n")

    def test_reports_host_that_does_not_answer(self):
        node = self.hosts.nodes[1]
        node.link_down()
        self.addCleanup(node.link_up)
        self.refused(UNAVAILABLE, ["node2"], options=["--connect_timeout", "3"])

    def test_reports_node_whose_port_has_no_sshd(self):
        self.front.write_file(".ssh/config", "Host node2\n  Port 2222\n")
        self.addCleanup(lambda: self.front.outside_path(".ssh/config").unlink())
        self.refused(UNAVAILABLE, ["node2", "(?i)refused"])

    def test_refuses_changed_host_key(self):
        self.hosts.set_known_hosts([self.hosts.known_hosts["node1"], self.hosts.other_key_line("node2")])
        self.refused(NO_PERMISSION, ["node2", "(?i)changed|differ|does not match"])

    def test_refuses_unknown_host_key(self):
        self.hosts.set_known_hosts([self.hosts.known_hosts["node1"]])
        self.refused(NO_PERMISSION, ["node2", "(?i)unknown|not known|known_hosts"])

    def test_refuses_revoked_host_key(self):
        lines = list(self.hosts.known_hosts.values())
        self.hosts.set_known_hosts([*lines, "@revoked " + self.hosts.known_hosts["node2"]])
        self.refused(NO_PERMISSION, ["node2", "(?i)revoked"])

    def test_reports_node_that_refuses_login(self):
        node = self.hosts.nodes[1]
        keys = node.read_file(".ssh/authorized_keys")
        node.write_file(".ssh/authorized_keys", "", 0o600)
        self.addCleanup(node.write_file, ".ssh/authorized_keys", keys, 0o600)
        self.refused(NO_PERMISSION, ["node2"])

    def test_reports_missing_program(self):
        self.refused(NOT_FOUND, ["no-such-program-here", r"node[12]"], program=["no-such-program-here"])

    def test_reports_all_unusable_nodes(self):
        self.hosts.set_known_hosts([])
        self.refused(NO_PERMISSION, ["node1", "node2"])

    def test_job_succeeds_with_usable_nodes(self):
        code, job = self.run_job(self.two_by_two(), "true")
        self.assert_code(0, code, job)


if __name__ == "__main__":
    main()
