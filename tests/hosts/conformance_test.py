"""Runs the same cases with every launcher. A launcher must pass each case or give the reason why it cannot.

  tests/hosts/conformance_test.py            runs the cases that no other test has
  tests/hosts/conformance_test.py --table    runs all cases, with 100 MB in and out; prints the table of
docs/launchers.md
"""

import contextlib
import hashlib
import os
import re
import shutil
import signal
import sys
import time
import unittest

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from hosts_case import HostsCase, OutsideCase  # noqa: E402
from launcher_case import ROOT, LauncherCase, bash  # noqa: E402
from slurm_case import SlurmCase  # noqa: E402
from slurm_cluster import why_not as why_no_slurm  # noqa: E402
from test_hosts import SYSTEM_PATH, wait_until  # noqa: E402
from test_hosts import why_not as why_no_hosts  # noqa: E402

WAITING_RANKS = ': > "$1/up.$RANK"; exec sleep 60'
FULL = "--table" in sys.argv or os.environ.get("DSLAUNCH_TEST_FULL") == "1"
MEGABYTES = 100 if FULL else 8
# The other cases are also in the tests of each launcher, so they run only with --table.
QUICK = ("test_passes_large_stdin", "test_shows_large_output", "test_shell_output_is_ignored", "test_lost_daemon_leaves_no_process")


class Conformance:
    """Defines the cases. A subclass is one launcher (`way`): it starts jobs and injects faults."""

    way = ""
    failure_codes = (69,)

    def job(self, *more):
        """Returns the options of a job of two nodes with two slots each."""
        raise NotImplementedError

    def not_given(self, why):
        raise unittest.SkipTest(why)

    def remove_agents(self):
        """Removes the agent from the nodes."""
        raise NotImplementedError

    def make_noise(self):
        """Makes the nodes' shells print text before they run a command."""
        raise NotImplementedError

    def cut(self):
        """Disconnects the second node from the network."""
        raise NotImplementedError

    def break_daemon(self):
        """Kills the process that connects the second node, or all nodes, to dslaunch."""
        raise NotImplementedError

    def cancel(self, job):
        job.signal(signal.SIGTERM)

    def start_waiting(self, *more):
        job = self.start(self.job("--grace", "3", *more), bash(WAITING_RANKS), "-", self.folder)
        self.wait_for_files(job, "up.*", 4)
        return job

    def assert_rank_numbers(self, job):
        self.assertEqual([str(i) for i in range(4)], sorted(re.findall(r"rank (\d) of 4\.", job.stdout)), job.output)

    def test_ranks_run_and_leave_no_process(self):
        """start and end"""
        code, job = self.run_job(self.job("--show", "all"), bash('echo "rank $RANK of $WORLD_SIZE."'))
        self.assert_code(0, code, job)
        self.assert_rank_numbers(job)
        self.assert_nothing_left()

    def test_reports_first_failed_rank(self):
        """first cause"""
        code, job = self.run_job(self.job(), bash('[ $RANK != 3 ] || exit 7; exec sleep 60'))
        self.assert_code(7, code, job)
        self.assert_prints(job, r"rank 3 .*exited with code 7")
        self.assert_nothing_left(within_s=10)

    def test_copies_agent_to_nodes(self):
        """agent comes along"""
        self.remove_agents()
        code, job = self.run_job(self.job(), "true")
        self.assert_code(0, code, job)
        self.assert_nothing_left()

    def test_shell_output_is_ignored(self):
        """noise on stdout"""
        self.make_noise()
        code, job = self.run_job(self.job("--show", "all"), bash('echo "rank $RANK of $WORLD_SIZE."'))
        self.assert_code(0, code, job)
        self.assert_rank_numbers(job)

    def test_passes_large_stdin(self):
        """100 MB in"""
        content = self.folder / "input"
        content.write_bytes(os.urandom(1 << 20) * MEGABYTES)
        digest = hashlib.sha256(content.read_bytes()).hexdigest()
        popen = self.popen
        self.popen = lambda argv, *rest, **files: popen(
            ["sh", "-c", 'f=$1; shift; exec "$@" < "$f"', "sh", str(content), *argv], *rest, **files)
        code, job = self.run_job(self.job("--stdin", "0"), bash('[ $RANK != 0 ] || sha256sum'), timeout_s=200)
        self.assert_code(0, code, job)
        self.assertIn(digest, job.stdout)

    def test_shows_large_output(self):
        """100 MB out"""
        lines = MEGABYTES * 10_000
        code, job = self.run_job(self.job("--show", "3", "--log_max_mb", "0"), bash(
            f'[ $RANK != 3 ] || yes {"x" * 99} | head -n {lines}'), timeout_s=200)
        self.assert_code(0, code, job)
        self.assertEqual(lines, len(re.findall("x{99}$", job.stdout, re.M)))

    def test_cancel_ends_all_ranks(self):
        """cancel"""
        job = self.start_waiting()
        self.cancel(job)
        self.assertNotEqual(0, self.wait(job))
        self.assert_nothing_left(within_s=10)

    def test_killed_front_end_leaves_no_process(self):
        """dslaunch killed"""
        job = self.start_waiting()
        front = [process for process in self.leftovers() if process.comm == "dslaunch"]
        for pid in {job.pid, *(process.pid for process in front)}:
            os.kill(pid, signal.SIGKILL)
        killed_at = time.time()
        self.wait(job)
        self.assert_nothing_left(within_s=20, since=killed_at)

    def test_reports_node_that_is_cut_off(self):
        """node cut off"""
        job = self.start_waiting()
        self.cut()
        self.assertIn(self.wait(job), self.failure_codes, job.output)
        self.assert_prints(job, self.second_node)
        self.heal()
        self.assert_nothing_left(within_s=30)

    def test_lost_daemon_leaves_no_process(self):
        """daemon lost"""
        job = self.start_waiting()
        self.break_daemon()
        broken_at = time.time()
        if self.daemon_is_replaced:
            # The line may also name the connection to the relay, which broke too.
            again = "(connection to node2 broke and was|connections to (node1, node2|node2, node1) broke and were) made again"
            wait_until(lambda: re.search(again, job.output), 10, "the job goes on")
            self.cancel(job)
        self.assertNotEqual(0, self.wait(job), job.output)
        self.assert_nothing_left(within_s=30, since=broken_at)

    def test_doctor_reports_node_facts(self):
        """node facts"""
        job = self.start(self.doctor(), "--json")
        self.wait(job)
        self.assertEqual(2, len(re.findall(r'"cores": *\d+', job.stdout)), job.output)

    second_node = "node2"
    daemon_is_replaced = False

    def doctor(self):
        return ["doctor", *self.job()]


class Local(Conformance, LauncherCase):
    way = "local"

    def job(self, *more):
        return ["--launcher", "local", "--num_nodes", "2", "--num_gpus", "2", *more]

    def remove_agents(self):
        self.not_given("needs none")

    def make_noise(self):
        self.not_given("no shell")

    def cut(self):
        self.not_given("no network")

    def break_daemon(self):
        self.not_given("no daemon")

    def doctor(self):
        self.not_given("one machine")


class OnHosts(Conformance):
    def cut(self):
        self.hosts.nodes[1].link_down()

    def heal(self):
        self.hosts.nodes[1].link_up()

    def remove_agents(self):
        for node in self.hosts.nodes:
            node.run(["rm", "-rf", f"{node.home}/.cache/dslaunch"])

    def make_noise(self):
        for node in self.hosts.nodes:
            node.write_file(".bashrc", "echo Welcome; seq 500; printf 'no newline'\n")
            self.addCleanup(node.write_file, ".bashrc", "")

    def kill_on(self, host, condition):
        victims = [process for process in host.processes() if condition(process)]
        self.assertTrue(victims, f"nothing to kill on {host.name}: {[process.argv[:2] for process in host.processes()]}")
        for process in victims:
            os.kill(process.pid, signal.SIGKILL)


class LibSsh(OnHosts, HostsCase):
    way = "ssh"
    daemon_is_replaced = True

    def job(self, *more):
        return ["--hostfile", self.hosts.hostfile(slots=2), *more]

    def break_daemon(self):
        self.kill_on(self.hosts.nodes[1], lambda process: process.comm == "sshd")


class SystemSsh(LibSsh):
    way = "ssh_command"

    def job(self, *more):
        return super().job("--ssh_command", "ssh", *more)


class Relay(LibSsh):
    """Runs the cases with four nodes of one slot each, because RelayFanout does not use one relay for all nodes."""
    way = "relay"
    host_options = {"nodes_log_in": True, "count": 4}

    def job(self, *more):
        return ["--hostfile", self.hosts.hostfile(slots=1), "--fanout", "2", *more]

    def doctor(self):
        self.not_given("asked without relays")


class OpenMpi(OnHosts, HostsCase):
    way = "openmpi"
    failure_codes = (69, 70)
    program = "mpirun"

    def job(self, *more):
        return ["--launcher", self.way, "--hostfile", self.hosts.hostfile(slots=2), *more]

    def break_daemon(self):
        self.kill_on(self.front, lambda process: process.argv and self.program in process.argv[0])


class Pdsh(OpenMpi):
    way = program = "pdsh"


class Pbs(OnHosts, HostsCase):
    """Runs the cases with tests/support/batch_programs/pbsdsh in place of Torque's pbsdsh."""
    way = "pbs"
    list_variable = "PBS_NODEFILE"

    def setUp(self):
        super().setUp()
        self.node_list = self.folder / "nodes"
        self.node_list.write_text("node1\nnode1\nnode2\nnode2\n")

    def base_environment(self):
        programs = ROOT / "tests" / "support" / "batch_programs"
        return {**super().base_environment(), "PATH": f"{programs}:{SYSTEM_PATH}", self.list_variable: str(self.node_list)}

    def job(self, *more):
        return ["--launcher", self.way, *more]

    def make_noise(self):
        self.not_given("no shell's start-up file is read")

    def break_daemon(self):
        self.kill_on(self.front, lambda process: process.argv and process.argv[0] == "ssh")


class Lsf(Pbs):
    """Runs the cases with tests/support/batch_programs/blaunch in place of LSF's blaunch."""
    way = "lsf"
    list_variable = "LSB_DJOB_HOSTFILE"


class Exec(OnHosts, OutsideCase):
    way = "exec_command"

    def job(self, *more):
        return ["--hostfile", self.hostfile(), "--exec_command", f"{self.enter} {{node}}", "--chdir", "/", *more]

    def hostfile(self):
        path = self.folder / "hostfile"
        path.write_text("node1 slots=2\nnode2 slots=2\n")
        return path

    def make_noise(self):
        self.enter.write_text(self.enter.read_text().replace("shift\n", "shift\necho Welcome; seq 500; printf 'no newline'\n"))

    def break_daemon(self):
        self.not_given("as its program has it")


class Slurm(Conformance, SlurmCase):
    way = "slurm"
    second_node = "n2"

    def job(self, *more):
        return ["--launcher", "slurm", "--slurm_args", "--quiet --ntasks-per-node=2", "--num_nodes", "2", *more]

    def remove_agents(self):
        home = self.folder / "home"
        home.mkdir()
        base = self.base_environment
        self.base_environment = lambda: {**base(), "HOME": str(home)}

    def make_noise(self):
        self.not_given("no shell's start-up file is read")

    def cut(self):
        self.not_given("one machine in this test")

    def break_daemon(self):
        for step in self.leftovers():
            if step.comm == "srun":
                with contextlib.suppress(ProcessLookupError):  # a step may have ended together with another step
                    os.kill(step.pid, signal.SIGKILL)

    def doctor(self):
        popen = self.popen
        self.popen = lambda argv, *rest, **files: popen(["salloc", "--quiet", "-N2", *argv], *rest, **files)
        return ["doctor"]


class SlurmRelay(Slurm):
    way = "slurm, relay"

    def job(self, *more):
        return super().job("--fanout", "2", *more)

    def doctor(self):
        self.not_given("asked without relays")


WAYS = (Local, LibSsh, SystemSsh, Relay, Slurm, SlurmRelay, OpenMpi, Pdsh, Pbs, Lsf, Exec)


class Table(unittest.TextTestResult):
    """Records each case's outcome for each launcher."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.rows = {}

    def _note(self, test, outcome):
        self.rows.setdefault(test.shortDescription(), {})[type(test).way] = outcome

    def addSuccess(self, test):
        super().addSuccess(test)
        self._note(test, "yes")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        if hasattr(test, "way"):
            self._note(test, reason)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self._note(test, "FAILS")

    def addError(self, test, error):
        super().addError(test, error)
        if hasattr(test, "way"):
            self._note(test, "FAILS")

    def markdown(self):
        ways = [way.way for way in WAYS]
        lines = [["case", *ways], ["---"] * (1 + len(ways))]
        cases = [value.__doc__ for name, value in vars(Conformance).items() if name.startswith("test_")]
        for case, outcomes in sorted(self.rows.items(), key=lambda row: cases.index(row[0])):
            lines.append([case, *(outcomes.get(way, "not run") for way in ways)])
        return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def main():
    as_table = "--table" in sys.argv
    names = [word for word in sys.argv[1:] if not word.startswith("-")]
    reason = why_no_hosts() or why_no_slurm() or next(
        (f"{program} is not installed" for program in ("mpirun", "pdsh") if shutil.which(program) is None), None)
    if reason:
        sys.exit(f"NOT RUN: {reason}")
    loader = unittest.TestLoader()
    suite = unittest.TestSuite(loader.loadTestsFromNames(names, sys.modules[__name__]) if names else
                               [way(case) for way in WAYS for case in loader.getTestCaseNames(way) if FULL or case in QUICK])
    result = unittest.TextTestRunner(verbosity=2, resultclass=Table).run(suite)
    if as_table:
        print(result.markdown(), end="")
    sys.exit(0 if result.wasSuccessful() else 1)


if __name__ == "__main__":
    main()
