"""Tests hostfiles: jobs on their nodes and slots, with their environment, and `dslaunch hostfile write` and `check`."""

import json
import os
import re
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from hosts_case import HostsCase, main  # noqa: E402
from launcher_case import bash  # noqa: E402

USAGE, BAD_INPUT, UNAVAILABLE = 64, 65, 69
CORES = len(os.sched_getaffinity(0))


class Jobs(HostsCase):
    def hostfile(self, text, name="hosts.yaml"):
        return ["--hostfile", self.front.write_file(name, text)]

    def test_yaml_sets_addresses_and_environment(self):
        addresses = [node.address for node in self.hosts.nodes]
        hosts = self.hostfile(
            "hosts:\n"
            f"- name: b\n  address: {addresses[1]}\n  user: root\n  port: 22\n  slots: 1\n"
            "  env: &both {GREETING: \"it's $(x) `y` \\\"z\\\"\\ntwo lines\", ONLY: b}\n"
            f"- name: a\n  address: {addresses[0]}\n  slots: 2\n  env: {{ONLY: a}}\n")
        code, job = self.run_job(hosts, "--show", "all",
                                 bash('echo "$RANK is on $(hostname) with $ONLY and ${GREETING@Q}"'))
        self.assert_code(0, code, job)
        said = re.findall(r"\[(\w+):\d\] (\d) is on (\w+) with (\w+) and (.*)", job.stdout)
        self.assertEqual([("b", "0", "node2", "b"), ("a", "1", "node1", "a"), ("a", "2", "node1", "a")],
                         sorted((row[:4] for row in said), key=lambda row: row[1]), job.output)
        greeting = [row[4] for row in said if row[1] == "0"][0]
        self.assertEqual("$'it\\'s $(x) `y` \"z\"\\ntwo lines'", greeting)

    def test_include_and_exclude_choose_nodes_and_slots(self):
        hosts = self.hostfile("node1 slots=4\nnode2 slots=4\n", "hosts")
        script = bash('echo "$RANK of $WORLD_SIZE on $(hostname) as $LOCAL_RANK of $LOCAL_WORLD_SIZE."')
        code, job = self.run_job(hosts, "--include", "node2:1,3@node1:2", "--show", "all", script)
        self.assert_code(0, code, job)
        self.assert_prints(job, "0 of 3 on node1 as 0 of 1", "1 of 3 on node2 as 0 of 2", "2 of 3 on node2 as 1 of 2")
        code, job = self.run_job(hosts, "--exclude", "node1@node2:0", "--show", "all", script)
        self.assert_code(0, code, job)
        self.assert_prints(job, "0 of 3 on node2 as 0 of 3", "2 of 3 on node2 as 2 of 3")
        self.assertNotIn("node1", job.stdout)

    def test_rejects_wrong_filter_before_connecting(self):
        hosts = self.hostfile("node1 slots=4\nnode2 slots=4\n", "hosts")
        before = [node.sshd_log() for node in self.hosts.nodes]
        for option, value, said in (("--include", "nose1", "did you mean 'node1'"),
                                    ("--include", "node1:4", "slots 0 to 3"),
                                    ("--exclude", "node1@node2", "leaves no slot"),
                                    ("--include", "node1:0-2", "ranges are not supported")):
            code, job = self.run_job(hosts, option, value, "true")
            self.assert_code(USAGE, code, job)
            self.assertIn(said, job.stderr)
        self.assertEqual(before, [node.sshd_log() for node in self.hosts.nodes])

    def test_local_node_alone_needs_no_ssh(self):
        hosts = self.hostfile("localhost slots=2\n", "hosts")
        code, job = self.run_job(hosts, "--show", "all", bash('echo "$RANK on $(hostname)"'))
        self.assert_code(0, code, job)
        self.assert_prints(job, "0 on front", "1 on front")
        code, job = self.run_job(hosts, "--force_multi", "--connect_timeout", "5", "true")
        self.assert_code(UNAVAILABLE, code, job)  # because the front host has no sshd

    def test_dry_run_opens_no_connection(self):
        hosts = self.hostfile(
            "hosts:\n- {name: node1, slots: 4, env: {HF_TOKEN: s3cret, MODE: hidden, NCCL_DEBUG: INFO}}\n"
            "- {name: node2, slots: 4, labels: {rack: a7}}\n- {name: no-such-host, slots: 4, spare: true}\n")
        before = [node.sshd_log() for node in self.hosts.nodes]
        arguments = [*hosts, "--include", "node1:2,3@node2:0@no-such-host", "--dry_run"]
        program = ["/bin/echo", "two words", "--api_key=hidden"]
        code, job = self.run_job(*arguments, *program)
        self.assert_code(0, code, job)
        for said in ("3 ranks", "node1", "2,3", "no-such-host", "spare", "rack=a7", "MODE='***'", "NCCL_DEBUG=INFO", "'two words'",
                     "MASTER_PORT", "start"):
            self.assertIn(said, job.stdout)
        code, job = self.run_job(*arguments, "--json", *program)
        self.assert_code(0, code, job)
        plan = json.loads(job.stdout)
        self.assertEqual(["node1", "node1", "node2"], [rank["node"] for rank in plan["ranks"]])
        self.assertEqual([[2, 3], [0]], [node["devices"] for node in plan["nodes"][:2]])
        self.assertEqual("INFO", plan["ranks"][0]["env"]["NCCL_DEBUG"])
        self.assertEqual("***", plan["ranks"][0]["env"]["MODE"])
        self.assertNotIn("MODE", plan["ranks"][2]["env"])
        self.assertEqual(["/bin/echo", "two words"], plan["ranks"][2]["argv"][:2])
        self.assertIsNone(plan["ranks"][1]["env"]["MASTER_PORT"])
        self.assertEqual("1", plan["ranks"][1]["env"]["LOCAL_RANK"])
        for secret in ("s3cret", "hidden"):
            self.assertNotIn(secret, job.output)
        self.assertEqual(before, [node.sshd_log() for node in self.hosts.nodes])
        self.assert_nothing_left(1)


class Commands(HostsCase):
    def hostfile_command(self, *arguments, code=0, env=None):
        found, job = self.run_job("hostfile", *arguments, env=env)
        self.assert_code(code, found, job)
        self.assert_presentable(job)
        return job

    def out(self, name):
        return os.path.join(self.front.home, name)

    def test_write_makes_hostfile_that_runs(self):
        path = self.out("written")
        job = self.hostfile_command("write", "--hosts", "node2,root@node1:22", "--output", path)
        self.assertIn("2 nodes", job.stderr)
        text = self.front.read_file(path)
        slots = f"slots={CORES} "
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        self.assertEqual(["node2", "root@node1:22"], [line.split()[0] for line in lines], text)
        for line in lines:
            self.assertIn(slots, line + " ")
        code, job = self.run_job("--hostfile", path, "--num_gpus", "1", "--show", "all", "hostname")
        self.assert_code(0, code, job)
        self.assert_prints(job, r"\[node2:0\] node2", r"\[root@node1:22:1\] node1")
        self.assert_nothing_left()

    def test_write_prints_hostfile_or_makes_yaml(self):
        job = self.hostfile_command("write", "--hosts", "node1")
        self.assertRegex(job.stdout, r"(?m)^node1 +slots=\d+ ")
        path = self.out("written.yaml")
        self.hostfile_command("write", "--hosts", "root@node1:22,node2", "--output", path)
        self.hostfile_command("check", path)

    def test_write_overwrites_only_with_force(self):
        path = self.front.write_file("mine", "keep me\n")
        job = self.hostfile_command("write", "--hosts", "node1", "--output", path, code=USAGE)
        self.assertIn("--force", job.stderr)
        self.assertEqual("keep me\n", self.front.read_file(path))
        self.hostfile_command("write", "--hosts", "node1", "--output", path, "--force")
        self.assertIn("slots=", self.front.read_file(path))

    def test_write_names_failing_nodes_and_makes_no_file(self):
        path = self.out("partial")
        hosts = ["--hosts", "node1,no-such-host,10.66.0.99,node2", "--connect_timeout", "4"]
        job = self.hostfile_command("write", *hosts, "--output", path, code=UNAVAILABLE)
        for name in ("no-such-host", r"10\.66\.0\.99", "2 of 4 nodes", "--skip_failing"):
            self.assertRegex(job.stderr, name)
        self.assertFalse(self.front.outside_path(path).exists())
        self.hostfile_command("write", *hosts, "--skip_failing", "--output", path)
        text = self.front.read_file(path)
        self.assertIn("node1", text)
        self.assertIn("node2", text)
        self.assertNotIn("no-such-host", text)

    def test_write_lists_nodes_of_slurm_allocation(self):
        env = {"SLURM_JOB_NODELIST": "node[1-2]", "SLURM_JOB_NUM_NODES": "2"}
        job = self.hostfile_command("write", "--slurm", env=env)
        self.assertRegex(job.stdout, r"(?s)node1 +slots=.*node2 +slots=")
        job = self.hostfile_command("write", "--slurm", env={**env, "SLURM_JOB_NUM_NODES": "3"}, code=USAGE)
        self.assertRegex(job.stderr, "has 2 nodes, but SLURM_JOB_NUM_NODES is 3")
        job = self.hostfile_command("write", "--slurm", code=USAGE)
        self.assertIn("salloc", job.stderr)

    def test_write_lists_hosts_of_ssh_config(self):
        self.front.write_file(".ssh/config", "Host one\n  HostName node1\nHost *\n  User root\nHost node2\n")
        self.addCleanup(lambda: self.front.outside_path(".ssh/config").unlink())
        job = self.hostfile_command("write", "--ssh_config")
        self.assertRegex(job.stdout, r"(?s)one +slots=.*node2 +slots=")

    def test_check_shows_every_node(self):
        path = self.front.write_file("good.yaml", "- {name: node1, slots: 2, labels: {rack: a7}}\n"
                                                  "- {name: node2, slots: 1, spare: true}\n")
        job = self.hostfile_command("check", path)
        self.assertRegex(job.stdout, rf"(?m)^node1 +node1 +2 +0 +{CORES} +\d+ GiB +rack=a7 +ok$")
        self.assertRegex(job.stdout, r"(?m)^node2 .* ok, spare$")
        report = json.loads(self.hostfile_command("check", path, "--json").stdout)
        self.assertTrue(report["ok"])
        self.assertEqual([CORES, CORES], [node["cores"] for node in report["nodes"]])
        self.assert_nothing_left()

    def test_check_names_failing_nodes_and_lines(self):
        path = self.front.write_file("bad", "node1 slots=2\nno-such-host slots=2\nnode2 slots=2\n")
        job = self.hostfile_command("check", path, code=UNAVAILABLE)
        self.assertRegex(job.stdout, r"(?m)^no-such-host .*FAILED$")
        self.assertRegex(job.stdout, r"(?m)^node2 .*ok$")
        self.assertIn("no-such-host", job.stderr)
        job = self.hostfile_command("check", path, "--json", code=UNAVAILABLE)
        report = json.loads(job.stdout)
        self.assertEqual([True, False, True], [node["ok"] for node in report["nodes"]])
        path = self.front.write_file("worse", "node1 slots=0\n")
        job = self.hostfile_command("check", path, code=BAD_INPUT)
        self.assertIn("worse:1: 'slots=0'", job.stderr)
        self.hostfile_command("check", self.out("no_such_file"), code=BAD_INPUT)


if __name__ == "__main__":
    main()
