"""Tests `dslaunch doctor --bench` and --preflight on eight test hosts. A node with a slow network, processor or
disk, or with a wrong clock, must be named with its figure. Healthy nodes must never be named. A spare must replace an
unfit node."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from hosts_case import AGENT, HostsCase, main  # noqa: E402
from launcher_case import BUILD  # noqa: E402
from small_disk import SmallDisk  # noqa: E402

UNAVAILABLE = 69
NODES = 8
BAD = 4  # index of the node that a test makes slow
LEAST_DIFFERENCE_OF_SHARES = 0.1  # smallest difference that counts, see cli/preflight/judgement.cc
HEALTHY_RUNS = 100 if os.environ.get("DSLAUNCH_TEST_FULL") else 2
CGROUPS = pathlib.Path("/sys/fs/cgroup")


class Preflight(HostsCase):
    host_options = {"count": NODES, "agent": AGENT}

    @property
    def bad(self):
        return self.hosts.nodes[BAD]

    def bench(self, *arguments, code=0, timeout_s=90):
        """Runs doctor --bench. Returns the report and its findings as (node, check, level, seen), without findings
        that are ok."""
        found, job = self.run_job("doctor", "-H", self.hosts.hostfile(slots=1), "--bench", "--json", *arguments,
                                  timeout_s=timeout_s)
        self.assert_code(code, found, job)
        report = json.loads(job.stdout)
        self.assert_nothing_left(1)
        return report, [(finding["node"], finding["check"], finding["level"], finding["seen"])
                        for finding in report["findings"] if finding["level"] != "ok"]

    def names_bad_node(self, checks, *arguments, level="warn", says="", least_share=0):
        """Checks that only the bad node is named, for one of these checks. Skips the test if nothing is found while
        other programs leave the nodes, which share this machine, less than `least_share` of a processor each."""
        report, findings = self.bench(*arguments, code=0 if level == "warn" else UNAVAILABLE)
        figures = {node["node"]: node["figures"] for node in report["nodes"]}
        if not findings:
            self.skip_if_busy(report, least_share)
        self.assertTrue(findings, f"nothing was found; figures: {figures}")
        self.assertEqual({self.bad.name}, {node for node, *_ in findings}, f"{findings}; figures: {figures}")
        self.assertLessEqual({check for _, check, *_ in findings}, set(checks), findings)
        self.assertRegex(findings[0][3], says)

    def skip_if_busy(self, report, least_share):
        share, = [figure["median"] for figure in report["nodes"][0]["figures"] if figure["figure"] == "CPU share"]
        if share < least_share:
            self.skipTest(f"other programs leave each node {share:.0%} of a processor")

    def in_cgroup(self, controller, **files):
        """Puts the bad node's current and later processes into a cgroup with these settings. Skips the test without
        cgroup v1."""
        folder = CGROUPS / controller / f"dslaunch-test-preflight-{os.getpid()}"
        if not (CGROUPS / controller / "cgroup.procs").exists():
            self.skipTest(f"this machine has no cgroup v1 of {controller}")
        folder.mkdir()
        def remove():
            for pid in (folder / "cgroup.procs").read_text().split():
                with contextlib.suppress(OSError):
                    (folder.parent / "cgroup.procs").write_text(pid)
            folder.rmdir()
        self.addCleanup(remove)
        for name, value in files.items():
            (folder / f"{controller}.{name}").write_text(value)
        for process in self.bad._listening_sshds():
            (folder / "cgroup.procs").write_text(str(process.pid))

    def test_healthy_nodes_pass(self):
        for run in range(HEALTHY_RUNS):
            report, findings = self.bench()
            self.assertEqual([], findings, f"run {run}: {[node['figures'] for node in report['nodes']]}")
        self.assertEqual(7, len(report["nodes"][0]["figures"]))

    def test_names_node_with_limited_rate(self):
        limit = ["tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "20mbit", "burst", "32kb", "latency", "50ms"]
        self.assertEqual(0, self.bad.run(limit).returncode)
        self.addCleanup(self.bad.run, ["tc", "qdisc", "del", "dev", "eth0", "root"])
        self.names_bad_node(["send", "receive", "round trip"], says=r"\d+\.\d Mbit/s, the median is [\d.]+ [MG]bit/s")

    def test_names_node_with_delay(self):
        done = self.bad.run(["tc", "qdisc", "add", "dev", "eth0", "root", "netem", "delay", "20ms"])
        if done.returncode != 0:
            self.skipTest(f"this kernel has no netem: {done.stderr.strip()}")
        self.addCleanup(self.bad.run, ["tc", "qdisc", "del", "dev", "eth0", "root"])
        self.names_bad_node(["send", "receive", "round trip"], says="ms, the median is 0")

    def test_names_node_with_cpu_quota(self):
        quota = 0.01
        self.in_cgroup("cpu", cfs_period_us="100000", cfs_quota_us=f"{100000 * quota:.0f}")
        self.names_bad_node(["CPU share", "core", "memory", "send", "receive", "round trip", "log folder"],
                            says=r"^\d+ %, the median is \d+ %", least_share=2 * quota + LEAST_DIFFERENCE_OF_SHARES)

    def test_names_node_with_slow_disk(self):
        with contextlib.closing(SmallDisk()) as disk:
            device = os.stat(disk.path).st_dev
            # The hosts were started before the disk was mounted, so the disk is mounted in the bad node too.
            source = next(line.split()[0] for line in pathlib.Path("/proc/self/mounts").read_text().splitlines()
                          if line.split()[1] == str(disk.path))
            logs = self.folder / "logs"
            logs.mkdir()
            logs.chmod(0o777)
            done = self.bad.run(["mount", source, str(logs)])
            self.assertEqual(0, done.returncode, done.stderr)
            self.addCleanup(self.bad.run, ["umount", "--lazy", str(logs)])
            self.bad.run(["chmod", "777", str(logs)])
            self.in_cgroup("blkio", **{"throttle.write_bps_device": f"{os.major(device)}:{os.minor(device)} 1048576"})
            self.names_bad_node(["log folder"], "--log_dir", logs, says=r"logs: \d+.* [kM]B/s, the median is")

    def test_names_node_with_wrong_clock(self):
        for program in BUILD / "bin/dslaunch", BUILD / "tests/wrong_clock/dslaunch-agent":
            shutil.copy(program, self.folder)
        popen = self.popen
        self.popen = lambda argv, *rest, **files: popen([str(self.folder / "dslaunch"), *argv[1:]], *rest, **files)
        self.bad.write_file(".bashrc", "export WRONG_CLOCK_S=7\n")
        self.addCleanup(self.bad.write_file, ".bashrc", "")
        self.names_bad_node(["clock"], says=r"\+[67]\.\d s off")

    def test_names_node_whose_health_command_fails(self):
        self.names_bad_node(["health command"], "--health_command", self.health_check(), level="fail",
                            says="exit code 3: fan is broken")

    def health_check(self):
        """Makes the bad node unhealthy. Returns a command that detects this."""
        self.bad.write_file("sick", "")
        self.addCleanup(self.bad.outside_path("sick").unlink)
        check = self.folder / "check"
        check.write_text('#!/bin/sh\n[ "$1" = --all ] || exit 9\n'
                         '[ ! -e "$HOME/sick" ] || { echo "fan is broken"; exit 3; }\n')
        check.chmod(0o755)
        return f"{check} --all"

    def spares_hostfile(self):
        return self.hosts.hostfile(text="".join(f"{node.name} slots=1{' spare=true' if node is self.hosts.nodes[-1] else ''}\n"
                                                for node in self.hosts.nodes))

    def test_spare_replaces_unfit_node(self):
        code, job = self.run_job("-H", self.spares_hostfile(), "--health_command", self.health_check(), "--show", "all", "hostname",
                                 timeout_s=90)
        self.assert_code(0, code, job)
        self.assert_prints(job, "preflight: node5: health command: it ended with exit code 3",
                           "preflight: node5 is set aside; spare node8 gets its ranks")
        for rank in range(NODES - 1):
            self.assert_prints(job, f"node{8 if rank == BAD else rank + 1}\n")
        self.assert_nothing_left(1)

    def test_spare_replaces_node_that_becomes_unfit(self):
        """Makes node5 unhealthy during the first attempt, in which its rank fails. The second attempt must run on
        the spare."""
        check = self.health_check()
        self.bad.outside_path("sick").unlink()
        program = (f'if [ "$RANK" = {BAD} ] && [ "$TORCHELASTIC_RESTART_COUNT" = 0 ]; then touch ~/sick; exit 7; fi; '
                   'test "$TORCHELASTIC_RESTART_COUNT" = 1 || sleep 60; hostname')
        code, job = self.run_job("-H", self.spares_hostfile(), "--health_command", check, "--show", "all",
                                 "sh", "-c", program, timeout_s=90)
        self.assert_code(0, code, job)
        self.assert_prints(job, "node5 is unfit for the next attempt: health command: it ended with exit code 3: fan is broken",
                           "attempt 2: node1, node2, node3, node4, node6, node7, node8 get ranks",
                           "node8\n")
        self.assertNotRegex(job.stdout, "node5$")
        self.assert_nothing_left(1)

    def test_names_unfit_node_without_replacement(self):
        check = self.health_check()
        self.bad.outside_path("sick").unlink()
        program = f'[ "$RANK$TORCHELASTIC_RESTART_COUNT" != {BAD}0 ] || {{ touch ~/sick; exit 7; }}'
        code, job = self.run_job("-H", self.hosts.hostfile(slots=1), "--max_restarts", 1, "--health_command", check,
                                 "sh", "-c", program, timeout_s=90)
        self.assert_code(0, code, job)
        self.assert_prints(job, "node5 is unfit for the next attempt: health command",
                           "node5 too, though it is unfit: fewer than 8 nodes would remain")
        self.assert_nothing_left(1)

    def test_job_fails_without_replacement(self):
        code, job = self.run_job("-H", self.hosts.hostfile(slots=1), "--health_command", self.health_check(), "hostname", timeout_s=90)
        self.assert_code(UNAVAILABLE, code, job)
        self.assert_prints(job, "node5 cannot be used, and no spare can replace it")
        self.assertNotIn("node1\n", job.stdout)
        self.assert_nothing_left(1)

    def test_keeps_measurements_of_job(self):
        code, job = self.run_job("-H", self.hosts.hostfile(slots=1), "--preflight", "--log_dir", self.folder, "true",
                                 timeout_s=90)
        self.assert_code(0, code, job)
        self.assert_prints(job, r"preflight: 8 nodes fit, measured in \d")
        kept, = self.folder.glob("*/preflight.json")
        self.assertEqual(8, len(json.loads(kept.read_text())["nodes"]))


if __name__ == "__main__":
    main()
