"""Tests that `dslaunch doctor` reports a node's problem, the step or check that found it, and a hint, and that it
leaves no file or process."""

import json
import shutil
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from hosts_case import HostsCase, main  # noqa: E402
from launcher_case import BUILD  # noqa: E402

FAKE_NVIDIA_SMI = __file__.rsplit("/", 2)[0] + "/support/nvidia_smi"

UNAVAILABLE = 69


class Doctor(HostsCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(self.hosts.trust_all)

    @property
    def node2(self):
        return self.hosts.nodes[1]

    def bashrc(self, text):
        """Sets the text that node2's login shell runs first, until the end of the test."""
        self.node2.write_file(".bashrc", text)
        self.addCleanup(self.node2.write_file, ".bashrc", "")

    def files(self):
        """Returns the files to which doctor must add none: in homes except the agent's folder, and in the working
        directory."""
        found = [str(path) for path in self.folder.rglob("*") if not path.name.startswith("dslaunch.")]
        for node in self.hosts.nodes:
            found += node.run(["find", node.home, "-path", "*/.cache", "-prune", "-o", "-print"]).stdout.split("\n")
        return sorted(found)

    def doctor(self, *arguments, hostfile=None, timeout_s=40):
        before = self.files()
        code, job = self.run_job("doctor", "-H", self.hosts.hostfile(slots=2, text=hostfile), *arguments,
                                 timeout_s=timeout_s)
        self.assert_presentable(job)
        self.assertEqual(before, self.files(), "doctor left files")
        self.assert_nothing_left(1)
        return code, job

    def finds(self, level, check, *says, arguments=(), hostfile=None):
        """Checks that node2 has exactly this finding, in text and in JSON, and that node1 has none."""
        expected = UNAVAILABLE if level == "fail" else 0
        code, job = self.doctor(*arguments, hostfile=hostfile)
        self.assert_code(expected, code, job)
        lines = job.stdout.splitlines()
        self.assertRegex(lines[0], "^node1 +ok +")
        place, = [i for i, line in enumerate(lines) if line.startswith("node2")]
        self.assertRegex(lines[place], f"(?i)^node2 +{level} +{check}: ")
        self.assertRegex(lines[place + 1], "^ +-> ")
        for pattern in says:
            self.assertRegex(job.stdout, pattern)
        code, job = self.doctor("--json", *arguments, hostfile=hostfile)
        self.assert_code(expected, code, job)
        report = json.loads(job.stdout)
        bad, = [finding for finding in report["findings"] if finding["level"] != "ok"]
        self.assertEqual(("node2", check, level), (bad["node"], bad["check"], bad["level"]))
        self.assertTrue(bad["hint"])
        self.assertEqual(expected == 0, report["ok"])
        return report

    def test_healthy_nodes_pass(self):
        for _ in range(2):  # the first run copies the agent, the second does not
            code, job = self.doctor()
            self.assert_code(0, code, job)
            self.assertEqual(5, len(job.stdout.splitlines()), job.stdout)
            self.assert_prints(job, "(?m)^node1 +ok .*rendezvous", "(?m)^node2 +ok .*reaches node1 through eth0",
                               "state folder: each node has its own", "working directory: shared by all nodes",
                               "All is well on 2 nodes")
        code, job = self.doctor("--json")
        report = json.loads(job.stdout)
        for node in report["nodes"]:
            self.assertEqual(["resolve", "connect", "handshake", "host key", "login", "start agent"], node["steps"])
            self.assertGreater(node["info"]["cores"], 0)
            self.assertLess(abs(node["clock_ahead_us"]), 1_000_000)
        reach, = [way for way in report["nodes"][1]["reach"] if way["endpoint"].startswith("10.66.0.1:")]
        self.assertEqual((True, "eth0", "10.66.0.2"), (reach["reached"], reach["interface"], reach["local_address"]))

    def test_checks_this_machine_without_hostfile(self):
        code, job = self.run_job("doctor")
        self.assert_code(0, code, job)
        self.assert_prints(job, "(?m)^localhost +ok ", "All is well on 1 node")
        self.assert_nothing_left(1)

    def test_reports_unknown_host_name(self):
        code, job = self.doctor(hostfile="node1 slots=2\nno-such-host slots=2\n")
        self.assert_code(UNAVAILABLE, code, job)
        self.assert_prints(job, "(?m)^node1 +ok", "(?m)^no-such-host +FAIL +resolve: ", "1 of 2 nodes fails")

    def test_reports_node_without_sshd(self):
        self.fresh_hosts()
        self.node2.stop_sshd()
        self.finds("fail", "connect", "(?i)refused", "start sshd", "done before: resolve")

    def test_reports_pulled_cable(self):
        self.node2.link_down()
        self.addCleanup(self.node2.link_up)
        self.finds("fail", "connect", "check that the node is up", arguments=["--connect_timeout", "3"])

    def test_reports_changed_host_key(self):
        self.hosts.set_known_hosts([self.hosts.known_hosts["node1"], self.hosts.other_key_line("node2")])
        self.finds("fail", "host key", "(?i)changed", "ssh-keygen", "done before: resolve, connect, handshake\n")

    def test_reports_unauthorized_key(self):
        keys = self.node2.read_file(".ssh/authorized_keys")
        self.node2.write_file(".ssh/authorized_keys", "", 0o600)
        self.addCleanup(self.node2.write_file, ".ssh/authorized_keys", keys, 0o600)
        self.finds("fail", "login", "authorized_keys", "done before: resolve, connect, handshake, host key\n")

    def cover_cache(self, options):
        """Mounts a tmpfs on node2 over the folder to which the agent is copied."""
        cache = f"{self.node2.home}/.cache"
        done = self.node2.run(["sh", "-c", f"mkdir -p {cache} && mount -t tmpfs -o {options} tmpfs {cache}"])
        self.assertEqual(0, done.returncode, done.stderr)
        self.addCleanup(self.node2.run, ["umount", cache])

    def test_reports_full_disk(self):
        self.cover_cache("size=1m")
        self.finds("fail", "copy agent", "(?i)no space left|disk full", "login\n")

    def test_reports_noexec_home(self):
        self.cover_cache("noexec")
        self.finds("fail", "copy agent", "(?i)permission denied", "noexec")

    def test_reports_low_limit_of_open_files(self):
        self.bashrc("ulimit -n 64\n")
        self.finds("fail", "open files", "the limit is 64", "limits.conf")

    def test_reports_unreachable_rendezvous(self):
        self.node2.run(["nft", "add table inet doctor; add chain inet doctor output { type filter hook output "
                        "priority 0; }; add rule inet doctor output ip daddr 10.66.0.1 drop; "
                        "add rule inet doctor output ip6 daddr fd66::1 reject"])
        self.addCleanup(self.node2.run, ["nft", "delete table inet doctor"])
        self.finds("fail", "network", r"cannot reach node1", r"10\.66\.0\.1:\d+ through eth0: no answer",
                   "firewall")

    def test_warns_of_wrong_clock(self):
        # dslaunch uses the agent in its own folder, so both programs are copied to one folder.
        for program in BUILD / "bin/dslaunch", BUILD / "tests/wrong_clock/dslaunch-agent":
            shutil.copy(program, self.folder)
        popen = self.popen
        self.popen = lambda argv, *rest, **files: popen([str(self.folder / "dslaunch"), *argv[1:]], *rest, **files)
        self.bashrc("export WRONG_CLOCK_S=-5\n")
        self.finds("warn", "clock", r"it is -[45]\.\d s off", "chronyd", "2 nodes can be used, 1 warning")

    def test_reports_unusable_gpus(self):
        self.bashrc(f"export PATH={FAKE_NVIDIA_SMI}:$PATH FAKE_NVIDIA_GPUS=2\n")
        code, job = self.doctor("--device", "cuda")
        self.assert_code(UNAVAILABLE, code, job)
        self.assert_prints(job, "node1 +FAIL +gpus: 0 usable GPUs for 2 slots",
                           "node2 +FAIL +gpus: 0 usable GPUs, of 2 installed for 2 slots", "2 of 2 nodes fail")
        self.bashrc(f"export PATH={FAKE_NVIDIA_SMI}:$PATH "
                    "FAKE_NVIDIA_ERROR='Driver/library version mismatch'\n")
        self.finds("warn", "gpu driver", "Driver/library version mismatch", "nvidia-smi")

    def test_reports_missing_interpreter_of_one_node(self):
        script = self.folder / "t.py"
        script.write_text("")
        self.bashrc("export VIRTUAL_ENV=/no/venv\n")
        self.finds("fail", "program", "/no/venv", arguments=[script])


class SharedHome(HostsCase):
    host_options = {"shared_home": True}

    def test_detects_shared_home(self):
        code, job = self.run_job("doctor", "-H", self.hosts.hostfile(slots=2))
        self.assert_code(0, code, job)
        self.assert_prints(job, "state folder: shared by all nodes")
        self.assert_nothing_left(1)


if __name__ == "__main__":
    main()
