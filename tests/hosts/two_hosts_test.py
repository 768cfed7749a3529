"""Tests jobs on two test hosts over SSH: where ranks run, and what is passed to them."""

import json
import os
import random
import re
import subprocess
import sys
import time

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from awkward_bytes import awkward_strings  # noqa: E402
from hosts_case import HostsCase, main  # noqa: E402
from launcher_case import bash  # noqa: E402


class TwoHosts(HostsCase):
    def test_two_ranks_run_on_each_host(self):
        script = 'echo "rank=$RANK local=$LOCAL_RANK world=$WORLD_SIZE host=$(hostname) at=$MASTER_ADDR cwd=$PWD."'
        code, job = self.run_job(self.two_by_two(), "--show", "all", bash(script))
        self.assert_code(0, code, job)
        found = re.findall(r"\[(\w+):(\d)\] rank=(\d) local=(\d) world=4 host=(\w+) at=(\S+) cwd=(\S+)\.", job.stdout)
        self.assertEqual([("node1", "0", "0", "0", "node1"), ("node1", "1", "1", "1", "node1"),
                          ("node2", "2", "2", "0", "node2"), ("node2", "3", "3", "1", "node2")],
                         sorted((row[:5] for row in found), key=lambda row: row[1]), job.output)
        addresses = {row[5] for row in found}
        # On node1 itself, the name node1 resolves to 127.0.1.1, which node2 cannot use.
        self.assertIn(addresses.pop(), ("10.66.0.1", "fd66::1"))
        self.assertFalse(addresses, "all ranks must be told the same address")
        self.assertEqual({str(self.folder)}, {row[6] for row in found})
        self.assert_prints(job, r"2 nodes x 2 slots = 4 ranks")
        self.assert_nothing_left()

    def test_agents_use_network_interface_and_port(self):
        code, job = self.run_job(self.two_by_two(), "--network_interface", "eth0", "--rdzv_port", "29777", "--show", "all",
                                 "--log_level", "debug", bash('echo "$RANK by $GLOO_SOCKET_IFNAME and $NCCL_SOCKET_IFNAME at $MASTER_ADDR"'))
        self.assert_code(0, code, job)
        self.assertEqual(4, len(re.findall(r"\d by eth0 and eth0 at (?:10\.66\.0\.1|fd66::1)", job.stdout)), job.output)
        self.assert_prints(job, r"the rendezvous is on node1: .*:29777")
        code, job = self.run_job(self.two_by_two(), "--network_interface", "ib7", "true")
        self.assert_code(69, code, job)
        self.assert_prints(job, r"node1: --network_interface ib7: no such interface is up and has an address; there is eth0 "
                                r"\(10\.66\.0\.1\)")
        self.assert_nothing_left()

    def test_hostfile_order_is_rank_order(self):
        code, job = self.run_job(self.two_by_two("node2 slots=1\nnode1 slots=2\n")[:2], "--show", "all",
                                 bash('echo "$RANK on $(hostname) ($LOCAL_RANK of $LOCAL_WORLD_SIZE)"'))
        self.assert_code(0, code, job)
        self.assert_prints(job, r"0 on node2 \(0 of 1\)", r"1 on node1 \(0 of 2\)", r"2 on node1 \(1 of 2\)")

    def test_this_machine_needs_no_sshd(self):
        """dslaunch runs on a host without sshd. Whichever node hosts the rendezvous, the other node must be able to
        connect to it."""
        here = self.front.name
        self.assertNotIn("sshd", {process.comm for process in self.front.processes()})
        for order in ((here, "node1"), ("node1", here)):
            with self.subTest(order=order):
                code, job = self.run_job("--hostfile", self.hosts.hostfile(text="".join(f"{name} slots=1\n" for name in order)),
                                         "--show", "all", bash('echo "$RANK of $WORLD_SIZE on $(hostname) at $MASTER_ADDR"'))
                self.assert_code(0, code, job)
                found = re.findall(r"(\d) of 2 on (\S+) at (\S+)", job.stdout)
                self.assertEqual([("0", order[0]), ("1", order[1])], sorted(row[:2] for row in found), job.output)
                address, = {row[2] for row in found}
                self.assertRegex(address, r"^(10\.66\.|fd66:)")
                self.assert_prints(job, rf"\(ssh, cpu\): {order[0]} {order[1]} .*\({here} is this machine and is started without SSH\)")
                job_id = re.search(r"jobs/(\S+?)/nodes", job.output)[1]
                code, logs = self.run_job("logs", job_id, "--show", "all")
                self.assert_code(0, code, logs)
                self.assertEqual(2, len(re.findall(r"\d of 2 on", logs.stdout)), logs.output)
        self.assert_nothing_left()

    def test_pbs_nodefile_replaces_hostfile(self):
        nodes = self.front.write_file("nodes", "node1\nnode1\nnode2\n")
        script = bash('echo "$RANK of $WORLD_SIZE on $(hostname)"')
        code, job = self.run_job("--show", "all", script, env={"PBS_NODEFILE": nodes})
        self.assert_code(0, code, job)
        self.assertEqual({("0", "node1"), ("1", "node1"), ("2", "node2")}, set(re.findall(r"(\d) of 3 on (\w+)", job.stdout)), job.output)
        self.assert_prints(job, r"node1\(2\) node2\(1\) \(nodes and slots from PBS_NODEFILE\)")
        code, job = self.run_job("--show", "all", script, env={"PBS_NODEFILE": "/missing"})
        self.assert_code(0, code, job)
        self.assert_prints(job, "0 of 1 on front", "PBS_NODEFILE is not used: /missing: No such file or directory")
        self.assert_nothing_left()

    def test_options_choose_part_of_hostfile(self):
        code, job = self.run_job("--hostfile", self.hosts.hostfile(2), "--num_nodes", "1", "--num_gpus", "1",
                                 "--show", "all", bash('echo "$RANK of $WORLD_SIZE on $(hostname)"'))
        self.assert_code(0, code, job)
        self.assert_prints(job, "0 of 1 on node1")
        self.assertNotIn("node2", job.stdout)

    def test_arguments_arrive_byte_for_byte(self):
        arguments = [b"two words", b"", b"'single'", b'"double"', b"$HOME", b"`id`", b"a\\b", b"line\nbreak",
                     b"*", b"~", b"\xff\xfe", b"&& touch /tmp/x", b"%h"]
        script = self.folder / "argv.py"
        script.write_text("import os, sys\nprint('ARGV', [os.fsencode(word).hex() for word in sys.argv[1:]])\n")
        code, job = self.run_job(self.two_by_two(), "--show", "all", "/usr/bin/python3", script, *arguments)
        self.assert_code(0, code, job)
        expected = str([word.hex() for word in arguments])
        self.assertEqual(4, job.stdout.count(f"ARGV {expected}"), job.output)

    def test_large_output_arrives_over_ssh(self):
        code, job = self.run_job(self.two_by_two(), "--show", "all", "--log_dir", self.folder / "logs",
                                 bash("seq 1000000; echo end of $RANK"), timeout_s=90)
        self.assert_code(0, code, job)
        expected = "".join(f"{i}\n" for i in range(1, 1000001))
        for rank in range(4):
            log, = (self.folder / "logs").glob(f"**/rank_{rank}/stdout.log")
            self.assertEqual(expected + f"end of {rank}\n", log.read_text())
            self.assert_prints(job, f"end of {rank}")
        self.assert_nothing_left()


class NodesOwnVariables(HostsCase):
    def test_hostfile_env_applies_to_its_node_only(self):
        self.hosts.front.write_file("hosts.yaml", "hosts:\n"
                                    "  - {name: node1, slots: 1, env: {TZ: \"$(id) 1\", B: file}}\n"
                                    "  - {name: node2, slots: 1}\n")
        (self.folder / ".deepspeed_env").write_text("TZ=all\n")
        code, job = self.run_job("--hostfile", f"{self.hosts.front.home}/hosts.yaml", "--env", "B=option", "--show", "all",
                                 bash('echo "$RANK: TZ=$TZ B=$B"'))
        self.assert_code(0, code, job)
        self.assert_prints(job, r"0: TZ=\$\(id\) 1 B=option", "1: TZ=all B=option")


class UsersEnvironment(HostsCase):
    """Tests the parts of the user's shell that are passed without options: variables and a Python environment."""

    def test_passes_framework_variables_and_names_others(self):
        token = "hf_abcDEFghiJKLmnoPQRstuVWX"
        env = {"OMP_NUM_THREADS": "3", "TORCH_LOGS": "dynamo", "TOKENIZERS_PARALLELISM": "false", "HF_TOKEN": token,
               "OMPI_MCA_btl": "tcp", "CUDA_LAUNCH_BLOCKING": "1"}
        logs = self.folder / "logs"
        script = (f"cd {self.folder}; env -0 > env.$RANK; cat /proc/[0-9]*/cmdline > argv.$RANK 2> /dev/null; true")
        code, job = self.run_job(self.two_by_two(), "--log_dir", logs, bash(script),
                                 env={**env, "MINE": "1", "CUDA_VISIBLE_DEVICES": "0"})
        self.assert_code(0, code, job)
        self.assert_prints(job, "this shell's CUDA_VISIBLE_DEVICES and MINE are not passed to the nodes; -x NAME passes one")
        for rank in range(4):
            entries = (self.folder / f"env.{rank}").read_text().split("\0")
            got = dict(entry.split("=", 1) for entry in entries if "=" in entry)
            self.assertEqual(env, {name: got.get(name) for name in env}, f"rank {rank}")
            self.assertNotIn("MINE", got)
            self.assertNotIn(token, (self.folder / f"argv.{rank}").read_text(errors="replace"))
        self.assertNotIn(token, job.output)
        for path in logs.rglob("*"):
            if path.is_file():
                self.assertNotIn(token, path.read_text(errors="replace"), path)

    def make_environment(self):
        venv = self.folder / "venv"
        (venv / "bin").mkdir(parents=True)
        (venv / "bin" / "python3").symlink_to("/usr/bin/python3")
        return venv, {"VIRTUAL_ENV": str(venv), "PATH": f"{venv}/bin:/usr/bin:/bin"}

    def test_uses_same_python_environment_on_nodes(self):
        venv, active = self.make_environment()
        (self.folder / "t.py").write_text("import os, sys\nprint(os.environ['RANK'], sys.executable, flush=True)\n")
        for program in (["t.py"], ["python3", "t.py"], ["env", "python3", "t.py"]):
            code, job = self.run_job(self.two_by_two(), "--show", "all", *program, env=active)
            self.assert_code(0, code, job)
            self.assert_prints(job, *(f"{rank} {venv}/bin/python3" for rank in range(4)))
        node2 = self.hosts.nodes[1]
        node2.run(["mount", "-t", "tmpfs", "none", str(venv)])
        self.addCleanup(node2.run, ["umount", str(venv)])
        for program in (["t.py"], ["python3", "t.py"]):
            code, job = self.run_job(self.two_by_two(), *program, env=active)
            self.assert_code(127, code, job)
            self.assert_prints(job, rf"node2: the Python environment {venv}, which is active here, cannot be used there: "
                                    rf"{venv}/bin/python3: No such file")
        code, job = self.run_job(self.two_by_two(), bash("true"), env=active)
        self.assert_code(0, code, job)
        self.assert_prints(job, rf"node2: the Python environment {venv}, .*; a python3 that the program starts is another one")
        code, job = self.run_job(self.two_by_two(), "-x", "PYTHON_EXEC=python3", "t.py", env=active)
        self.assert_code(0, code, job)
        code, job = self.run_job("doctor", "-H", self.hosts.hostfile(slots=2), env=active)
        self.assert_code(69, code, job)
        self.assert_prints(job, rf"node2 +FAIL +python: the Python environment {venv} of this machine is not there: no "
                                rf"{venv}/bin/python3")

    def test_interfaces_follow_master_addr(self):
        for number, node in enumerate(self.hosts.nodes, start=1):
            for command in ("link add ib0 type bridge", f"addr add 10.77.0.{number}/24 dev ib0", "link set ib0 up"):
                self.assertEqual(0, node.run(["ip", *command.split()]).returncode, command)
            self.addCleanup(node.run, ["ip", "link", "del", "ib0"])
        script = bash('echo "$RANK: ${GLOO_SOCKET_IFNAME-unset} ${NCCL_SOCKET_IFNAME-unset}"')
        for address, expected in (("10.77.0.1", "ib0 ib0"), ("node1", "eth0 eth0"), ("nowhere.invalid", "unset unset")):
            code, job = self.run_job(self.two_by_two(), "--show", "all", "--master_addr", address, script)
            self.assert_code(0, code, job)
            self.assert_prints(job, *(f"{rank}: {expected}" for rank in range(4)))


class ByteForByte(HostsCase):
    REPORT = ("import json, os, sys\n"
              "json.dump([[os.fsencode(word).hex() for word in sys.argv[1:]],\n"
              "           {os.fsencode(k).hex(): os.fsencode(v).hex() for k, v in os.environ.items()}],\n"
              "          open(os.environ['FOLDER'] + '/report.' + os.environ['RANK'], 'w'))\n")

    def test_arguments_and_values_arrive_over_ssh(self):
        seed = int(os.environ.get("DSLAUNCH_TEST_SEED", time.time_ns() & 0xffffffff))
        print(f"DSLAUNCH_TEST_SEED={seed}", file=sys.stderr)
        chance = random.Random(seed)
        script = self.folder / "report.py"
        script.write_text(self.REPORT)
        for _ in range(3):
            arguments = awkward_strings(chance, 20)
            values = awkward_strings(chance, 20)
            # An enclosing pair of quotes would be removed from the values in this file, so the values have none.
            in_file = [value.replace(b"\n", b"").replace(b"\r", b"").strip(b" \t\v\f\"'")
                       for value in awkward_strings(chance, 20)]
            exported = awkward_strings(chance, 5)
            file = self.folder / "variables"
            file.write_bytes(b"".join(b"F%d=%b\n" % pair for pair in enumerate(in_file)))
            words = [part for i, value in enumerate(values) for part in ("--env", b"V%d=%b" % (i, value))]
            code, job = self.run_job(self.two_by_two(), "--env", f"FOLDER={self.folder}", *words, script, *arguments,
                                     env={"DS_ENV_FILE": str(file),
                                          **{b"NCCL_X%d" % i: value for i, value in enumerate(exported)}})
            self.assert_code(0, code, job)
            for rank in range(4):
                argv, env = json.loads((self.folder / f"report.{rank}").read_text())
                got = {bytes.fromhex(name): bytes.fromhex(value) for name, value in env.items()}
                self.assertEqual(arguments, [bytes.fromhex(word) for word in argv], f"seed {seed}")
                self.assertEqual(values, [got[b"V%d" % i] for i in range(20)], f"seed {seed}")
                self.assertEqual(in_file, [got[b"F%d" % i] for i in range(20)], f"seed {seed}")
                self.assertEqual(exported, [got[b"NCCL_X%d" % i] for i in range(5)], f"seed {seed}")


class AgentUpload(HostsCase):
    def cached_agents(self, node):
        return node.run(["find", node.home, "-type", "f", "-size", "+1M", "-perm", "-u+x"]).stdout.split()

    def test_copies_agent_once_to_node_without_it(self):
        # A start changes the access time of the file. A copy would have another inode number and birth time.
        for node in self.hosts.nodes:
            self.assertEqual([], self.cached_agents(node))
        code, job = self.run_job(self.two_by_two(), "true")
        self.assert_code(0, code, job)
        first = {node.name: self.cached_agents(node) for node in self.hosts.nodes}
        for node in self.hosts.nodes:
            path, = first[node.name]
            folders = [path.rsplit("/", up)[0] for up in range(1, 3)]
            for mode in node.run(["stat", "-c", "%a", *folders]).stdout.split():
                self.assertEqual("0", mode[-1], f"others may use {folders}")
        inodes = [node.run(["stat", "-c", "%i %W", *first[node.name]]).stdout for node in self.hosts.nodes]
        code, job = self.run_job(self.two_by_two(), "true")
        self.assert_code(0, code, job)
        self.assertEqual(inodes, [node.run(["stat", "-c", "%i %W", *self.cached_agents(node)]).stdout
                                  for node in self.hosts.nodes], "it was copied again")
        self.assert_nothing_left()


class SharedHome(HostsCase):
    host_options = {"shared_home": True}

    def test_nodes_with_shared_home_run_ranks(self):
        for _ in range(2):  # in the first run both nodes copy the agent at once; in the second both have it
            code, job = self.run_job(self.two_by_two(), "--show", "all", bash('echo "$RANK on $(hostname)"'))
            self.assert_code(0, code, job)
            for rank, node in enumerate(["node1", "node1", "node2", "node2"]):
                self.assert_prints(job, f"{rank} on {node}")
        self.assert_nothing_left()


class NoisyLogin(HostsCase):
    host_options = {"bashrc": "echo 'Welcome to this node!'\necho 'quota exceeded' >&2\nseq 2000\n"}

    def test_ignores_output_of_bashrc(self):
        for _ in range(2):  # the first run copies the agent, the second does not
            # bash -c is not used, because it reads .bashrc itself if SSH_CLIENT is set.
            code, job = self.run_job(self.two_by_two(), "--show", "all", "sh", "-c", 'echo "rank $RANK is fine"')
            self.assert_code(0, code, job)
            for rank in range(4):
                self.assert_prints(job, f"rank {rank} is fine")
            self.assertNotIn("Welcome", job.stdout)
        self.assert_nothing_left()


class Rekey(HostsCase):
    host_options = {"sshd_options": {"RekeyLimit": "1M"}}

    def test_output_and_agent_copy_survive_rekeying(self):
        code, job = self.run_job(self.two_by_two(), "--show", "all", "--log_dir", self.folder / "logs",
                                 bash("seq 1500000; echo end of $RANK"), timeout_s=90)
        self.assert_code(0, code, job)
        for rank in range(4):
            self.assert_prints(job, f"end of {rank}")
        self.assert_nothing_left()


class ManyHosts(HostsCase):
    host_options = {"count": 6}

    def test_six_hosts_run_one_rank_each(self):
        code, job = self.run_job("--hostfile", self.hosts.hostfile(1), "--show", "all",
                                 bash('echo "$RANK on $(hostname)."'))
        self.assert_code(0, code, job)
        for rank in range(6):
            self.assert_prints(job, rf"{rank} on node{rank + 1}\.")
        self.assert_nothing_left()

    def test_max_startups_does_not_make_node_unavailable(self):
        # sshd's MaxStartups refuses some of many simultaneous logins. dslaunch must not treat the node as unreachable.
        names = [f"alias{i}" for i in range(14)]
        config = "".join(f"Host {name}\n  HostName node1\n  HostKeyAlias node1\n" for name in names)
        self.front.write_file(".ssh/config", config)
        self.addCleanup(subprocess.run, ["rm", "-f", str(self.front.outside_path(".ssh/config"))])
        hosts = self.hosts.hostfile(text="".join(f"{name} slots=1\n" for name in names))
        code, job = self.run_job("--hostfile", hosts, "true")
        self.assertNotEqual(69, code, job.output)
        self.assert_presentable(job)
        self.assert_nothing_left()


if __name__ == "__main__":
    main()
