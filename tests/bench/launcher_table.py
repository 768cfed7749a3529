"""Compares launchers: `tests/bench/launch --table` runs this comparison and writes it into README.md and
docs/benchmarks.md.

Every launcher runs the same two programs with the same number of ranks. One prints a line and ends; the other prints a
line and sleeps until it is killed. The first gives the time of a job and of its first line. One rank of the second is
killed with SIGKILL, and the launcher's reaction is recorded.
"""

import dataclasses
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from launcher_case import DSLAUNCH, ROOT
from slurm_cluster import SlurmCluster, why_not as why_no_slurm
from test_hosts import TestHosts, processes_where, why_not as why_no_hosts

ORACLE = ROOT / ".deps" / "oracle" / "bin"
DEEPSPEED = ROOT / ".deps" / "deepspeed" / "bin" / "python3"
PAGES = ROOT / "README.md", ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- begin: written by tests/bench/launch --table -->", "<!-- end -->"

START_LIMIT_S = 90
NOTICE_LIMIT_S = 30
LEFT_AFTER_S = 2
END_LIMIT_S = 10
SLOW_S = 2.0  # a launcher that takes longer is measured only in SLOW_ROUNDS rounds
SLOW_ROUNDS = 3


@dataclasses.dataclass(frozen=True)
class Way:
    """A launcher in a setting."""
    setting: str        # such as "one node, 2 ranks"
    name: str
    argv: tuple         # command up to the ranks' program
    why_not: str = ""   # reason why it cannot be measured; empty if it can


@dataclasses.dataclass
class Result:
    job_s: list
    line_s: list
    notice_s: float = None  # None if not within NOTICE_LIMIT_S
    code: int = None
    left: int = None

    def cells(self):
        notice = f"> {NOTICE_LIMIT_S} s" if self.notice_s is None else seconds(self.notice_s)
        return [seconds(statistics.median(self.line_s)), seconds(statistics.median(self.job_s)), notice,
                "-" if self.code is None else str(self.code),
                "the job continues" if self.notice_s is None else str(self.left)]


def seconds(value):
    return f"{1000 * value:.0f} ms" if value < 1 else f"{value:.1f} s"


class Runner:
    """Runs the two programs under launchers. `popen` starts a command on the machine or host where launchers of this
    setting run."""

    def __init__(self, popen, environment, hosts=()):
        self._popen = popen
        self._environment = environment
        self._hosts = hosts  # hosts whose processes all belong to the job
        self._count = 0

    def _start(self, way, script):
        self._count += 1
        mark = f"{os.getpid()}{self._count:04}"
        argv = [*way.argv, "sh", "-c", script.format(mark=mark)]
        begin = time.monotonic()
        child = self._popen(argv, env={**self._environment, "COMPARISON_MARK": mark}, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return child, mark, begin

    @staticmethod
    def _await_line(child, mark, begin):
        """Reads up to the first line of a rank and returns its time."""
        said = b""
        for line in child.stdout:
            if b"up-" + mark.encode() in line:
                return time.monotonic() - begin
            said += line
        sys.exit(f"no rank printed its line:\n{said.decode(errors='replace')[-2000:]}")

    def job(self, way):
        """Runs a job; returns the seconds until its first line and until its end."""
        child, mark, begin = self._start(way, "echo up-{mark}")
        line_s = self._await_line(child, mark, begin)
        child.stdout.read()
        if child.wait(timeout=START_LIMIT_S) != 0:
            sys.exit(f"{way.name} ({way.setting}) ended with {child.returncode}")
        return line_s, time.monotonic() - begin

    def kill(self, way, ranks, result):
        """Kills the last rank of a job, and records the launcher's reaction and the processes that it leaves."""
        child, mark, begin = self._start(way, "echo up-{mark}; exec sleep 6{mark}")
        self._await_line(child, mark, begin)
        sleeping = ("sleep", f"6{mark}")
        end = time.monotonic() + START_LIMIT_S
        while len(alive := processes_where(lambda process: process.argv == sleeping)) < ranks:
            if time.monotonic() > end:
                sys.exit(f"{way.name} ({way.setting}): only {len(alive)} of {ranks} ranks started")
            time.sleep(0.05)
        killed = time.monotonic()
        os.kill(max(process.pid for process in alive), signal.SIGKILL)
        try:
            result.code = child.wait(timeout=NOTICE_LIMIT_S)
            result.notice_s = time.monotonic() - killed
        except subprocess.TimeoutExpired:
            pass
        time.sleep(LEFT_AFTER_S)
        left = {process.pid for process in processes_where(
            lambda process: process.argv == sleeping or process.environ.get("COMPARISON_MARK") == mark)}
        left |= {process.pid for host in self._hosts for process in host.processes()}
        left.discard(child.pid)
        result.left = len(left)
        self._end(child, left)

    @staticmethod
    def _end(child, left):
        """Ends a launcher, which gives its allocation back if it is salloc, and the processes that are left."""
        if child.poll() is None:
            os.kill(getattr(child, "inner_pid", None) or child.pid, signal.SIGTERM)
            try:
                child.wait(timeout=END_LIMIT_S)
            except subprocess.TimeoutExpired:
                child.kill()
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        child.wait(timeout=END_LIMIT_S)
        child.stdout.close()

    def measure(self, ways, ranks, rounds):
        """Returns {way: Result}. The launchers run in turns, so that changes of the machine's load affect all of
        them."""
        results = {}
        for way in ways:
            self.job(way)  # warms up: the first job copies agents and fills caches
            results[way] = Result([], [])
        for turn in range(rounds):
            for way in ways[::1 if turn % 2 == 0 else -1]:
                if turn >= SLOW_ROUNDS and statistics.median(results[way].job_s) > SLOW_S:
                    continue
                line_s, job_s = self.job(way)
                results[way].line_s.append(line_s)
                results[way].job_s.append(job_s)
        for way in ways:
            self.kill(way, ranks, results[way])
        return results


def python_ways(setting, ranks):
    return [
        Way(setting, "torchrun", (str(ORACLE / "python3"), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
                                  str(ranks), "--no-python"),
            "" if (ORACLE / "torchrun").exists() else "packaging/fetch-oracle installs it"),
        Way(setting, "accelerate", (str(ORACLE / "python3"), str(ORACLE / "accelerate"), "launch", "--multi_gpu",
                                    "--num_processes", str(ranks), "--num_machines", "1", "--mixed_precision", "no",
                                    "--dynamo_backend", "no", "--main_process_port", "0", "--no_python"),
            "" if (ORACLE / "accelerate").exists() else "packaging/fetch-oracle installs it"),
        Way(setting, "deepspeed", (str(DEEPSPEED), "-m", "deepspeed.launcher.runner", "--num_gpus", str(ranks), "--no_python",
                                   "--no_local_rank"),
            "" if DEEPSPEED.exists() else "packaging/fetch-deepspeed installs it")]


def one_node(rounds):
    setting = "one node, 2 ranks"
    ways = [Way(setting, "dslaunch", (DSLAUNCH, "--launcher", "local", "--num_gpus", "2")), *python_ways(setting, 2),
            Way(setting, "mpirun", ("mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2"),
                "" if shutil.which("mpirun") else "Debian's openmpi-bin has it")]
    with tempfile.TemporaryDirectory() as folder:
        def popen(argv, env, **options):
            return subprocess.Popen(argv, env=env, cwd=folder, **options)
        environment = {**os.environ, "DS_ACCELERATOR": "cpu", "XDG_STATE_HOME": folder}
        return measured(Runner(popen, environment), ways, 2, rounds)


def two_hosts(rounds):
    setting = "two hosts over SSH, 2 ranks each"
    with TestHosts(2, nodes_log_in=True) as hosts:
        hostfile = hosts.hostfile(2)
        pdsh = "" if shutil.which("pdsh") else "Debian's pdsh is missing"
        ways = [Way(setting, "dslaunch", (DSLAUNCH, "--hostfile", hostfile)),
                Way(setting, "deepspeed", (str(DEEPSPEED), "-m", "deepspeed.launcher.runner", "--hostfile", hostfile,
                                           "--no_python", "--no_local_rank"),
                    pdsh if DEEPSPEED.exists() else "packaging/fetch-deepspeed installs it"),
                Way(setting, "mpirun", ("mpirun", "--allow-run-as-root", "--host", "node1:2,node2:2", "-np", "4"),
                    "" if shutil.which("mpirun") else "Debian's openmpi-bin has it")]
        def popen(argv, env, **options):
            return hosts.front.popen(argv, env, **options)
        environment = {"DS_ACCELERATOR": "cpu", "PDSH_RCMD_TYPE": "ssh", "PDSH_SSH_ARGS_APPEND": "-o LogLevel=ERROR"}
        return measured(Runner(popen, environment, [hosts.front, *hosts.nodes]), ways, 4, rounds)


def slurm(rounds):
    setting = "Slurm, 2 nodes, 2 ranks each"
    with SlurmCluster(nodes=2, cores=2) as cluster:
        environment = {**os.environ, **cluster.environment}
        salloc = ("salloc", "--quiet", "-N2", "-n4")
        ways = [Way(setting, "dslaunch", (*salloc, DSLAUNCH, "--num_gpus", "2")),
                Way(setting, "srun", (*salloc, "srun")),
                Way(setting, "srun --kill-on-bad-exit", (*salloc, "srun", "--kill-on-bad-exit"))]
        def popen(argv, env, **options):
            return subprocess.Popen(argv, env=env, **options)
        return measured(Runner(popen, environment), ways, 4, rounds)


def measured(runner, ways, ranks, rounds):
    able = [way for way in ways if not way.why_not]
    results = runner.measure(able, ranks, rounds)
    for way in ways:
        words = way.why_not and f"not measured: {way.why_not}" or ", ".join(results[way].cells())
        print(f"{way.setting} | {way.name} | {words}", flush=True)
    return results


HEADER = ["setting", "launcher", "first line", "whole job", "SIGKILL of a rank noticed", "exit code",
          f"processes left {LEFT_AFTER_S} s later"]


def table(results):
    """Returns the table as Markdown."""
    rows = [HEADER, ["---"] * len(HEADER)]
    last = None
    for way, result in results.items():
        rows.append([way.setting if way.setting != last else "", way.name, *result.cells()])
        last = way.setting
    return "\n".join("| " + " | ".join(row).replace("|  |", "| |") + " |" for row in rows) + "\n"


def write_pages(text):
    begin, end = re.escape(BEGIN), re.escape(END)
    for page in PAGES:
        changed, count = re.subn(f"{begin}\n.*?{end}", lambda _: f"{BEGIN}\n{text}{END}", page.read_text(), flags=re.DOTALL)
        if count != 1:
            sys.exit(f"{page} has no block between '{BEGIN}' and '{END}'")
        page.write_text(changed)
        print(f"wrote {page}")


def run(rounds, writes):
    begin = time.monotonic()
    results = one_node(rounds)
    for reason, measure in ((why_no_hosts(), two_hosts), (why_no_slurm(), slurm)):
        if reason:
            print(f"not measured: {reason}")
        else:
            results |= measure(rounds)
    text = table(results)
    print(f"\n{text}\nmeasured in {time.monotonic() - begin:.0f} s")
    if writes:
        write_pages(text)
