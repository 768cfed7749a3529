"""Tests jobs that a real mpirun or pdsh starts on two test hosts. One process of the launcher starts the agents,
which call back."""

import os
import re
import shutil
import signal
import sys
import time

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from hosts_case import HostsCase, main  # noqa: E402
from launcher_case import bash  # noqa: E402
from test_hosts import wait_until  # noqa: E402

# The test hosts share the machine's /tmp, where ranks create files to report that they run.
WAITING_RANKS = ': > "$1/up.$RANK"; exec sleep 60'


class StartAll:
    """Tests the properties that both launchers must have."""

    program = launcher = ""

    def setUp(self):
        if shutil.which(self.program) is None:
            self.fail(f"{self.program} is not installed; packaging/install-debian-packages --tests")
        super().setUp()

    def job(self, *more):
        return ["--launcher", self.launcher, "--hostfile", self.hosts.hostfile(slots=2), *more]

    def test_ranks_get_no_variables_of_the_launcher(self):
        code, job = self.run_job(self.job("--show", "all"), bash(
            'echo "$RANK of $WORLD_SIZE on $(hostname) at $MASTER_ADDR (${OMPI_COMM_WORLD_RANK-none} $PMIX_RANK)"'))
        self.assert_code(0, code, job)
        found = sorted(re.findall(r"(\d) of 4 on (\w+) at (\S+) \(none \1\)", job.stdout))
        self.assertEqual([("0", "node1"), ("1", "node1"), ("2", "node2"), ("3", "node2")],
                         [row[:2] for row in found], job.output)
        self.assertIn({row[2] for row in found}.pop(), ("10.66.0.1", "fd66::1"))
        self.assert_prints(job, rf"4 ranks \({self.launcher}, cpu\): node1 node2")
        self.assert_nothing_left()

    def test_keeps_order_of_hostfile(self):
        hostfile = self.hosts.hostfile(text="node2 slots=1\nnode1 slots=2\n")
        code, job = self.run_job("--launcher", self.launcher, "--hostfile", hostfile, "--show", "all",
                                 bash('echo "$RANK on $(hostname)"'))
        self.assert_code(0, code, job)
        self.assert_prints(job, "0 on node2", "1 on node1", "2 on node1")

    def test_installs_missing_agent(self):
        for node in self.hosts.nodes:
            node.run(["rm", "-rf", f"{node.home}/.cache/dslaunch"])
        node1, node2 = self.hosts.nodes
        code, job = self.run_job(self.job(), "true")
        self.assert_code(0, code, job)
        for node in (node1, node2):
            found = node.run(["sh", "-c", f"stat -c %a {node.home}/.cache/dslaunch/agent-*"]).stdout.split()
            self.assertEqual(["700"], found)
        node2.run(["rm", "-rf", f"{node2.home}/.cache/dslaunch"])
        node2.run(["ln", "-s", "/nowhere", f"{node2.home}/.cache/dslaunch"])
        try:
            code, job = self.run_job(self.job(), "true")
        finally:
            node2.run(["rm", f"{node2.home}/.cache/dslaunch"])
        self.assert_code(69, code, job)
        self.assert_prints(job, rf"node2.* by {self.program}\): the agent could not be installed; it printed: .*cannot create")
        self.assert_nothing_left(within_s=10)

    def test_mpi_env_gives_ranks_mpiruns_variables(self):
        code, job = self.run_job(self.job("--mpi_env", "--show", "all"), bash(
            'echo "$OMPI_COMM_WORLD_RANK/$OMPI_COMM_WORLD_SIZE $OMPI_COMM_WORLD_LOCAL_RANK/$OMPI_COMM_WORLD_LOCAL_SIZE."'))
        self.assert_code(0, code, job)
        self.assert_prints(job, r"0/4 0/2\.", r"1/4 1/2\.", r"2/4 0/2\.", r"3/4 1/2\.")

    def test_copies_program_and_files(self):
        done = self.front.run(["sh", "-c", "mount -t tmpfs tmpfs /mnt && mkdir /mnt/data && "
                               "head -c 20000000 /dev/urandom > /mnt/data/big && sha256sum < /mnt/data/big"])
        self.addCleanup(self.front.run, ["umount", "/mnt"])
        self.assertEqual(0, done.returncode, done.stderr)
        program = 'echo "$(hostname) in $DSLAUNCH_COPY_DIR has $(sha256sum < data/big)"'
        self.front.run(["sh", "-c", f"printf '%s\\n' '#!/bin/sh' '{program}' > /mnt/a.out && chmod +x /mnt/a.out"])
        code, job = self.run_job(self.job("--show", "all", "--copy", "./a.out", "--copy", "data/big"), "./a.out", cwd="/mnt")
        self.assert_code(0, code, job)
        for node in ("node1", "node2"):
            self.assert_prints(job, rf"{node} in /.*/copies/[0-9a-f]{{64}} has {done.stdout.split()[0]}")
        self.assert_nothing_left()

    def test_arguments_contain_no_private_key(self):
        job = self.start(self.job(), bash(WAITING_RANKS), "-", self.folder)
        self.wait_for_files(job, "up.*", 4)
        commands = ["\n".join(process.argv) for process in self.leftovers() if process.name in (self.program, "ssh", "orted")]
        self.assertTrue(commands)
        for text in commands:
            self.assertNotIn("PRIVATE KEY", text)
        job.signal(signal.SIGTERM)
        self.wait(job)
        self.assert_nothing_left(within_s=15)

    def test_reports_failed_rank_as_first_cause(self):
        code, job = self.run_job(self.job(), bash('[ $RANK != 3 ] || exit 7; exec sleep 60'))
        self.assert_code(7, code, job)
        self.assert_prints(job, r"rank 3 \(node2, local rank 1\) exited with code 7")
        self.assert_nothing_left()

    def test_killed_agent_loses_its_node(self):
        job = self.start(self.job(), bash(WAITING_RANKS), "-", self.folder)
        self.wait_for_files(job, "up.*", 4)
        _, agent = self.supervisor_and_agent(self.hosts.nodes[1])
        os.kill(agent.pid, signal.SIGKILL)
        self.assert_code(69, self.wait(job), job)
        self.assert_prints(job, r"node2")
        self.assert_nothing_left(within_s=15)

    def test_restarts_lost_agent(self):
        job = self.start(self.job("--max_restarts", "1", "--restart_delay_s", "0"), bash(
            ': > "$1/up.$DSLAUNCH_ATTEMPT.$RANK"; [ $DSLAUNCH_ATTEMPT != 1 ] || exec sleep 60'), "-", self.folder)
        self.wait_for_files(job, "up.1.*", 4)
        _, agent = self.supervisor_and_agent(self.hosts.nodes[1])
        os.kill(agent.pid, signal.SIGKILL)
        self.assert_code(0, self.wait(job), job)
        self.assertEqual(4, len(list(self.folder.glob("up.2.*"))), job.output)
        self.assert_prints(job, r"node2 is connected again", r"with 1 restart")
        self.assert_nothing_left(within_s=15)

    def test_ctrl_c_ends_all_processes(self):
        job = self.start(self.job("--grace", "3"), bash(WAITING_RANKS), "-", self.folder)
        self.wait_for_files(job, "up.*", 4)
        job.signal(signal.SIGINT)
        self.assert_code(130, self.wait(job), job)
        self.assert_nothing_left(within_s=10)

    def test_leaves_nothing_when_dslaunch_is_killed(self):
        job = self.start(self.job(), bash(WAITING_RANKS), "-", self.folder)
        self.wait_for_files(job, "up.*", 4)
        job.signal(signal.SIGKILL)
        killed_at = time.time()
        self.wait(job)
        self.assert_nothing_left(within_s=20, since=killed_at)

    def test_leaves_nothing_when_launcher_is_killed(self):
        job = self.start(self.job(), bash(WAITING_RANKS), "-", self.folder)
        self.wait_for_files(job, "up.*", 4)
        launcher, = [process for process in self.front.processes() if process.argv and self.program in process.argv[0]]
        os.kill(launcher.pid, signal.SIGKILL)
        killed_at = time.time()
        self.assert_code(69, self.wait(job), job)
        self.assert_nothing_left(within_s=20, since=killed_at)

    def test_reports_unreachable_node(self):
        hostfile = self.hosts.hostfile(text="node1 slots=1\nnode9 slots=1\n")
        code, job = self.run_job("--launcher", self.launcher, "--hostfile", hostfile, "--connect_timeout", "8", "true")
        self.assert_code(69, code, job)
        self.assert_prints(job, rf"node9.* by {self.program}", r"compare with \S*" + self.program)
        self.assert_nothing_left(within_s=15)

    def test_rejects_wrong_use(self):
        for given, why in (
                (["--launcher", self.launcher], rf"--launcher {self.launcher} needs to know the nodes: add --hostfile"),
                (self.job("--detach"), "end with it"),
                (self.job("--ssh_port", "22"), rf"--launcher {self.launcher} does not use"),
                (["--launcher", self.launcher, "--hostfile", self.hosts.hostfile(text="a:22 slots=1\n")], "has port 22")):
            with self.subTest(given=given):
                code, job = self.run_job(given, "true")
                self.assert_code(64, code, job)
                self.assert_prints(job, why)


class OpenMpi(StartAll, HostsCase):
    program, launcher = "mpirun", "openmpi"


class Pdsh(StartAll, HostsCase):
    program, launcher = "pdsh", "pdsh"

    def assert_fails_at_once(self, job, began, *says):
        self.assert_code(69, self.wait(job), job)
        self.assertLess(time.monotonic() - began, 20)
        self.assert_prints(job, *says)
        self.assert_nothing_left(within_s=15)

    def test_reports_failed_login_at_once(self):
        began = time.monotonic()
        job = self.start("--launcher", "pdsh", "--hostfile", self.hosts.hostfile(text="node1 slots=1\nnode9 slots=1\n"),
                         "--connect_timeout", "60", "true")
        self.assert_fails_at_once(job, began, r"node9.* by pdsh\): ssh exited with exit code 255; it printed: .*node9")

    def test_reports_agent_killed_early_at_once(self):
        node2 = self.hosts.nodes[1]
        code, job = self.run_job(self.job(), "true")  # installs the agent, so that the next job finds it
        self.assert_code(0, code, job)
        node2.forbid_connecting()
        self.addCleanup(node2.heal)
        job = self.start(self.job("--connect_timeout", "60"), "true")
        caller, = wait_until(lambda: [process for process in node2.processes() if process.comm == "dslaunch-call"], 20)
        os.kill(caller.pid, signal.SIGKILL)
        # On a busy machine, the supervisor may not have written its hello line yet.
        self.assert_fails_at_once(job, time.monotonic(), r"node2.* by pdsh\): (the agent was started, but it ended before it "
                                 "connected|.*node2: the supervisor cannot start: write the hello line: Broken pipe)")


if __name__ == "__main__":
    main()
