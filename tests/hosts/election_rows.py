"""Runs the rows of the kill matrix in which the rendezvous may move: a job of three nodes loses one node, and the
other two continue. If the lost node hosted the rendezvous, another host is needed. The nodes of a detached job elect
one, and the front end of an attached job chooses one. The new attempt must begin only when no process of the old
attempt runs."""

import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from launcher_case import BUILD, Job, supervisors_and_agents  # noqa: E402
from test_hosts import STATE, TestHosts, wait_until  # noqa: E402

DEAD_S = 2
GRACE_S = 1
# Limit for the leases of a lost rendezvous to expire (rendezvous/majority.h), the election and the start.
ELECTED_WITHIN_S = 2 * DEAD_S + 3 + 0.5 + 0.33 + GRACE_S + 5 + 20
# Options of a job that continues with two of its three nodes.
TIMES = ["--max_restarts", "2", "--nnodes", "2:3", "--restart_delay_s", "0.1", "--grace", str(GRACE_S),
         "--heartbeat_s", "0.33", "--suspect_s", "1", "--dead_s", str(DEAD_S)]
OPTIONS = ["--detach", *TIMES]
ATTACHED_OPTIONS = ["--lease_s", "4", *TIMES]  # --lease_s is how long an unreachable host is awaited
# Creates a file with its attempt and its host, then waits for the file `go`.
SCRIPT = """trap 'exit 143' TERM; touch "$1/up.$DSLAUNCH_ATTEMPT.$(hostname).$RANK"
            until [ -e "$1/go" ]; do echo up; sleep 0.1; done"""
START_S = 30
END_S = 60


def send(number, *kinds):
    """Returns a fault that sends the signal `number` to a node's supervisor, its agent, or both."""
    def act(node, _):
        supervisors, agents = supervisors_and_agents(node.processes())
        for process in [*("supervisor" in kinds) * supervisors, *("agent" in kinds) * agents]:
            os.kill(process.pid, number)
    return act


FAULTS = {
    "agent": send(signal.SIGKILL, "agent"),
    "supervisor": send(signal.SIGKILL, "supervisor"),
    "supervisor and agent": send(signal.SIGKILL, "supervisor", "agent"),
    "stop agent": send(signal.SIGSTOP, "agent"),
    "power cut": lambda node, _: node.power_cut(),
    "network cut, in": lambda node, _: node.cut_one_way("in"),
    "network cut, out": lambda node, _: node.cut_one_way("out"),
    "network cut, both": lambda node, _: node.link_down(),
    # These faults leave the front end connected to the node.
    "firewall between nodes, in": lambda node, others: node.cut_one_way("in", others),
    "firewall between nodes, out": lambda node, others: node.cut_one_way("out", others),
}
ONE_WAY = ("network cut, in", "network cut, out", "firewall between nodes, in", "firewall between nodes, out")
PLACES = ("node1", "node3")  # node1 hosts the rendezvous


def all_rows(users):
    """Returns (fault, where, user, is_attached) of each row."""
    return [(fault, where, user, is_attached) for user in users for is_attached in (False, True)
            for fault in (ONE_WAY if is_attached else FAULTS) for where in PLACES]


@dataclasses.dataclass
class Row:
    fault: str
    where: str
    user: str
    is_attached: bool = False
    code: int | None = None
    again_s: float | None = None  # seconds from the fault until all ranks of the next attempt run
    empty_s: float | None = None  # seconds from the request to end until no process is left on any node
    problems: list = dataclasses.field(default_factory=list)
    output: str = ""

    def __str__(self):
        return f"{self.fault} / {self.front_end}, running / {self.where}"

    @property
    def front_end(self):
        return "attached" if self.is_attached else "detached"


class RowRun:
    def __init__(self, row, hosts):
        self.row, self.hosts, self.job = row, hosts, None
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="dslaunch-election-"))
        os.chmod(self.folder, 0o777)

    def dslaunch(self, *arguments):
        done = self.hosts.front.run([f"{STATE}/bin/dslaunch", *arguments])
        self.row.output += done.stderr
        if done.returncode != 0:
            raise AssertionError(f"dslaunch {arguments[0]} ended with {done.returncode}")
        return done.stdout

    def start(self):
        """Starts the job. Returns a function that waits for the job's end and returns its exit code."""
        argv = ["--hostfile", self.hosts.hostfile(slots=2), *(ATTACHED_OPTIONS if self.row.is_attached else OPTIONS),
                "--log_dir", str(self.folder / "logs"), "bash", "-c", SCRIPT, "-", str(self.folder)]
        if not self.row.is_attached:
            job = self.dslaunch(*argv).strip()
            return lambda: wait_until(lambda: self.end_of(job), END_S, "the job ends")["exit_code"]
        job = self.job = Job(lambda **files: self.hosts.front.popen([f"{STATE}/bin/dslaunch", *argv], **files), self.folder)
        return lambda: job.wait(END_S)

    def run(self):
        row = self.row
        try:
            wait_for_end = self.start()
            wait_until(lambda: self.count("up.1.*") == 6, START_S, "all ranks run")
            lost, = (node for node in self.hosts.nodes if node.name == row.where)
            fault_at = time.time()
            FAULTS[row.fault](lost, [node for node in self.hosts.nodes if node is not lost])
            wait_until(self.runs_again, ELECTED_WITHIN_S, "the other nodes go on")
            row.again_s = time.time() - fault_at
            there = {path.name.split(".")[2] for path in self.folder.glob("up.2.*")}
            if row.where in there:
                row.problems.append(f"attempt 2 runs on {row.where}, which was lost")
            ends_at = time.time()
            (self.folder / "go").touch()
            row.code = wait_for_end()
            if row.code != 0:
                row.problems.append(f"exit code {row.code}, not 0")
            wait_until(lambda: not self.left(), END_S, "nothing is left")
            row.empty_s = time.time() - ends_at
        except (TimeoutError, AssertionError, subprocess.TimeoutExpired) as problem:
            logs = "\n".join(f"--- {path}\n{path.read_text()}" for path in sorted(self.folder.glob("logs/**/agent.log")))
            row.problems += [str(problem), *self.left()]
            row.output += logs
        finally:
            if self.job:
                row.output = self.job.output + row.output
                self.job.process.kill()
            shutil.rmtree(self.folder, ignore_errors=True)
        return row

    def count(self, pattern):
        return len(list(self.folder.glob(pattern)))

    def living(self):
        return [node for node in self.hosts.nodes if os.path.exists(f"/proc/{node.init_pid}")]

    def runs_again(self):
        attempts = {process.environ.get("DSLAUNCH_ATTEMPT") for node in self.living() for process in node.processes()
                    if process.environ.get("RANK")}
        if len(attempts) > 1 and self.row.where == "node1":
            raise AssertionError(f"attempts {sorted(attempts)} run at the same time")
        return self.count("up.2.*") == 4

    def end_of(self, job):
        entry, = (entry for entry in json.loads(self.dslaunch("ps", "--all", "--json")) if entry["job"] == job)
        return entry if entry["state"] == "ended" else None

    def left(self):
        """Returns the processes that are left. Excludes the sshd of a node that is cut off from its front end,
        because it waits for its client."""
        return [f"{node.name}: {process}" for node in self.living() for process in node.processes()
                if not (self.row.is_attached and node.name == self.row.where and process.name.startswith("sshd"))]


def run_row(fault, where, user, is_attached=False):
    """Runs a row on fresh test hosts and returns the result."""
    with TestHosts(3, user=user, binds={f"{STATE}/bin": BUILD / "bin"}, agent=BUILD / "bin" / "dslaunch-agent") as hosts:
        return RowRun(Row(fault, where, user, is_attached), hosts).run()
