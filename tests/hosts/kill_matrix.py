#!/usr/bin/env python3
"""Runs the kill matrix: faults x phases x nodes, on test hosts with real sshds.

sudo python3 tests/hosts/kill_matrix.py [--user root|tester] [--defaults] [--only SUBSTRING] [--pairwise] [--repeat N]
                    [--roots FRONT,NODE1,NODE2] [--markdown FILE]
sudo python3 tests/hosts/kill_matrix.py --latency     medians of 20: time until an end and a stop are known

Each cell is a job of 2 nodes x 2 ranks. Each rank has a grandchild in its own session. The cell defines the required
result, with a reason (EXPECTED below). The test measures the exit code, the time until each node knew (its ranks got
SIGTERM, or had ended), the time until no process was left on any host (by their process tables), and the cause that was
reported. The user is root, with a cgroup for each host (then the grandchildren have emptied their environment), or an
ordinary user without one. Without --defaults, the job runs with a grace of 1 s, and nodes are lost after 2 s of
silence. Some faults are also injected on hosts with another setup (SETUPS), in training whose ranks divide the layers
of a model and keep copies in memory (TRAINING), and in elastic jobs of three nodes (election_rows.py).
"""

import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import queue
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import election_rows  # noqa: E402
from launcher_case import BUILD, Job, is_agent_binary  # noqa: E402
from slow_exec import SlowExec  # noqa: E402
from small_disk import SmallDisk  # noqa: E402
from test_hosts import (STATE, TestHosts, all_pids, find_cgroup_root, namespace_of, read_process, wait_until,  # noqa: E402
                        why_not)

WORKER = pathlib.Path(__file__).with_name("matrix_worker.py")
COMMAND = "sudo python3 tests/hosts/kill_matrix.py --markdown docs/kill-matrix.md"
PHASES = ("starting", "running", "finishing", "teardown")
NODES = ("node1", "node2", "all")  # node1 hosts the rendezvous
ATTEMPTS = 3
START_S = 30  # limit until a job is in the cell's phase
POLL_S = 0.02
KNOWN_S = 3  # limit until an end is known everywhere, on a busy machine; the goal is 1 s, measured by --latency
STOP_S = 1  # time for which the front end is stopped, if it continues before its lease expires
FROZEN_S = 8  # time for which the disk is frozen
EXEC_S = 4  # duration of a slow execve
CUT_S = {"front end cut, 3 s": 3, "front end cut, 12 s": 12, "front end cut, 50 s": 50}
LEASE_OF_CUTS_S = 60
LONG = ("front end cut, 12 s", "front end cut, 50 s")


@dataclasses.dataclass(frozen=True)
class Times:
    """Times of the job, in seconds, and the options that set them."""
    grace: float
    dead: float
    lease: float
    options: tuple


FAST = Times(1, 2, 3, ("--grace", "1", "--heartbeat_s", "0.33", "--suspect_s", "1", "--dead_s", "2", "--lease_s", "3"))
DEFAULTS = Times(10, 6, 60, ())
TEARDOWN_S = 5  # limit of the teardown, beyond the grace


# --- what is expected ----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Expected:
    code: int | None  # exit code; None if dslaunch itself is killed
    cause: str | None  # text required in dslaunch's last block, {node}: the faulty node; None: no requirement
    known_s: str  # time until every node knows: "at once", "dead", "lease", or "never" if the fault ends nothing
    why: str


LOST = Expected(69, r"{node}", "at once", "a node was lost before it reported that no process is left")
SILENT = Expected(69, r"{node}", "dead", "a node fell silent")
GOES_ON = Expected(0, None, "never", "no rank failed and no node was lost")
NO_CODE = Expected(None, None, "at once", "a killed dslaunch has no exit code; its nodes end the ranks themselves")

# Maps each fault to (phases, where, Expected).
EXPECTED = {
    "rank": (PHASES[:3], NODES,
             Expected(137, r"rank {rank}\b.*SIGKILL", "at once", "the first rank that failed: 128 + SIGKILL")),
    "grandchild": (PHASES, NODES, GOES_ON),
    "agent": (PHASES, NODES, LOST),
    "supervisor": (PHASES, NODES, LOST),
    "supervisor and agent": (PHASES, NODES, LOST),
    "front end": (PHASES, ("front",), NO_CODE),
    "power cut": (PHASES, NODES, SILENT),
    "network cut, in": (PHASES, NODES, SILENT),
    "network cut, out": (PHASES, NODES, SILENT),
    "network cut, both": (PHASES, NODES, SILENT),
    "cable out, short": (PHASES[1:2], NODES[:2],
                         dataclasses.replace(GOES_ON, why="the cut is shorter than the silence after which a node is lost")),
    "stop rank": (PHASES[:3], NODES, dataclasses.replace(GOES_ON, why="a stopped rank has not failed; it is continued")),
    "stop agent": (PHASES, NODES, dataclasses.replace(LOST, known_s="dead", why="its supervisor kills a silent agent")),
    "stop front end": (PHASES[:3], ("front",),
                       Expected(69, None, "lease", "its lease expires; once continued, it finds its nodes lost")),
    "stop front end, cont": (PHASES, ("front",),
                             dataclasses.replace(GOES_ON, why="continued before its lease expired")),
    "front end cut, 3 s": (PHASES[1:], ("front",),
                           dataclasses.replace(GOES_ON, why="the nodes hold the front end's lease, which is longer")),
    "front end cut, 12 s": (("running",), ("front",),
                            dataclasses.replace(GOES_ON, why="the nodes hold the front end's lease, which is longer")),
    "front end cut, 50 s": (("running",), ("front",),
                            dataclasses.replace(GOES_ON, why="the nodes hold the front end's lease, which is longer")),
    "ssh reset": (PHASES[1:], NODES[:2], dataclasses.replace(GOES_ON, why="the connection is made again")),
    "rendezvous reset": (PHASES[1:], ("node2",), dataclasses.replace(GOES_ON, why="the connection is made again")),
    "frozen log disk": (PHASES[1:3], ("all",),
                        dataclasses.replace(GOES_ON, why="a node that waits for a disk is not lost")),
    "full log disk": (PHASES[1:], ("all",), dataclasses.replace(GOES_ON, why="ranks that ignore it continue")),
    "slow exec": (("starting",), ("all",),
                  dataclasses.replace(GOES_ON, why="all ranks start at the same time, and a slow execve is waited for")),
}
LOG_DISK = ("frozen log disk", "full log disk")
# Faults while the ranks write copies of their states into memory: {fault: processes that are killed}.
COPYING = {f"{' and '.join(kinds)}, copying": kinds for kinds in
           (("rank",), ("agent",), ("supervisor",), ("supervisor", "agent"), ("front end",))}
MEMORY_NAME = "dslaunch-memory-checkpoint"

for name in COPYING:
    _, places, expected = EXPECTED[name.removesuffix(", copying")]
    EXPECTED[name] = (("running",), places, expected)

# Faults while dslaunch train runs, with two ranks of each node in a tensor group: {fault: (processes that are killed,
# places)}.
TRAINING = {"rank, training": (("rank",), NODES), "agent, training": (("agent",), ("node1",)),
            "supervisor, training": (("supervisor",), ("node2",)),
            "supervisor and agent, training": (("supervisor", "agent"), ("all",)),
            "front end, training": (("front end",), ("front",))}
RECIPE = {
    "model": {"type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 16, "n_positions": 16, "vocab_size": 256},
    "data": {"type": "text", "path": f"{STATE}/matrix/{WORKER.name}"},
    "run": {"steps": 100000, "device": "cpu", "memory_checkpoint": 1},
    "engine": {"train_batch_size": 4, "optimizer": {"type": "AdamW", "params": {"lr": 0.001}},
               "zero_optimization": {"stage": 1}, "tensor_parallel": {"autotp_size": 2}}}

for name, (_, places) in TRAINING.items():
    EXPECTED[name] = (("running",), places, EXPECTED[name.removesuffix(", training")][2])

# Hosts with another setup: {name: options of TestHosts}.
SETUPS = {
    "MaxSessions 1": {"sshd_options": {"MaxSessions": "1"}},
    "certificates only": {"sshd_options": {"TrustedUserCAKeys": f"{STATE}/user_ca.pub", "AuthorizedKeysFile": "none"}},
    "one home": {"shared_home": True},
}
IN_SETUPS = ("agent / running / node1", "ssh reset / running / node2")


@dataclasses.dataclass(frozen=True)
class Cell:
    fault: str
    phase: str
    where: str
    expected: Expected
    setup: str = ""  # setup of the hosts; empty for the default

    @property
    def nodes(self):
        return {"all": ("node1", "node2"), "front": ()}.get(self.where, (self.where,))

    def __str__(self):
        return f"{self.fault} / {self.phase} / {self.where}" + (f" / {self.setup}" if self.setup else "")


def all_cells():
    usual = [Cell(fault, phase, where, expected)
             for fault, (phases, places, expected) in EXPECTED.items() for phase in phases for where in places]
    return usual + [dataclasses.replace(cell, setup=setup) for setup in SETUPS for cell in usual if str(cell) in IN_SETUPS]


def pairwise(cells):
    """Returns a selection of cells in which each pair of fault and phase, fault and place, and phase and place still
    occurs. Excludes long cells."""
    cells = [cell for cell in cells if cell.fault not in LONG]
    def pairs(cell):
        return {(cell.fault, cell.phase), (cell.fault, cell.where), (cell.phase, cell.where), (cell.setup, cell.fault)}
    missing, chosen = set().union(*map(pairs, cells)), []
    while missing:
        best = max(cells, key=lambda cell: len(pairs(cell) & missing))
        missing -= pairs(best)
        chosen.append(best)
    return [cell for cell in cells if cell in chosen]


def after_s(cell):
    """Returns the seconds that the job may take longer because of the fault. After a cut, TCP may retransmit only
    once the cut's length has passed again."""
    longer_s = {"cable out, short": 5, "frozen log disk": FROZEN_S, "slow exec": EXEC_S + 2, "ssh reset": 5}
    return longer_s.get(cell.fault, 2 * CUT_S.get(cell.fault, 0))


def known_within_s(cell, times):
    """Returns the seconds within which every node must know."""
    one_way = 3 if "network cut" in cell.fault else 0  # seconds to detect that nothing is received
    dead, lease = times.dead + one_way + 2, times.lease + 3
    if cell.expected is SILENT and cell.where == "all":
        dead = max(dead, lease)  # because the front end receives nothing, it may itself be the host that is cut off
    return {"at once": KNOWN_S, "dead": dead, "lease": lease, "never": 0}[cell.expected.known_s]


# --- what is seen --------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Seen:
    """A process on a host, as it was observed."""
    host: str
    pid: int
    kind: str  # supervisor, agent, watchdog, rank, grandchild, front end, other
    rank: int  # -1 if the process is not a rank
    text: str


def scan(hosts, spaces=None):
    """Returns all processes of all hosts, except the hosts' own first processes, sshds and sessions. A caller that
    scans repeatedly passes the same `spaces`, {pid: its namespace}, as a cache."""
    # A host whose first process has ended has no other processes, and its namespace number may have been reused.
    namespaces = {host.pid_namespace: host for host in [hosts.front, *hosts.nodes]
                  if os.path.exists(f"/proc/{host.init_pid}")}
    found = {}
    pids, spaces = all_pids(), {} if spaces is None else spaces
    for gone in spaces.keys() - set(pids):
        del spaces[gone]
    for pid in pids:
        if pid not in spaces:
            spaces[pid] = namespace_of(pid)
        host = namespaces.get(spaces[pid])
        if host is None or pid == host.init_pid:
            continue
        process = read_process(pid)
        if process is None or process.state == "Z" or process.name.startswith("sshd") or process.comm == "sshd":
            continue
        found[process.pid] = (host.name, process)
    return [Seen(host, process.pid, *kind_of(process, found), str(process)) for host, process in found.values()]


def kind_of(process, found):
    if process.argv[:1] == ("matrix-grandchild",):
        return "grandchild", int(process.environ.get("RANK", -1))
    if process.comm == "dslaunch-watch":
        return "watchdog", -1
    if process.name == "dslaunch-train":
        return "rank", int(process.environ.get("RANK", -1))
    if is_agent_binary(process):
        _, parent = found.get(process.ppid, (None, None))
        return ("agent" if parent and is_agent_binary(parent) else "supervisor"), -1
    if f"{STATE}/matrix/{WORKER.name}" in process.argv:
        # Between its fork and exec, the grandchild looks like a rank but has another parent.
        _, parent = found.get(process.ppid, (None, None))
        if parent and is_agent_binary(parent):
            return "rank", int(process.environ.get("RANK", -1))
    return ("front end" if process.name == "dslaunch" else "other"), -1


class Watch(threading.Thread):
    """Records the processes of all hosts from start() until stop()."""

    def __init__(self, hosts):
        super().__init__(daemon=True)
        self._hosts = hosts
        self._stopped = threading.Event()
        self.now = []  # processes of the last scan, as Seen
        self.gone_at = {}  # {Seen: time at which it was first missing}

    def run(self):
        spaces = {}
        while not self._stopped.is_set():
            now = scan(self._hosts, spaces)
            at = time.time()
            pids = {seen.pid for seen in now}
            for seen in self.now:
                if seen.pid not in pids:
                    self.gone_at[seen] = at
            self.now = now
            self._stopped.wait(POLL_S)

    def stop(self):
        self._stopped.set()
        self.join()

    def of(self, kind, host=None):
        return [seen for seen in self.now if seen.kind == kind and host in (None, seen.host)]


class Missed(Exception):
    """The job was not in the cell's phase when the fault was injected, so the run shows nothing about dslaunch."""


@dataclasses.dataclass
class Result:
    cell: Cell
    user: str
    code: int | None = None
    exit_s: float | None = None
    known_s: dict = dataclasses.field(default_factory=dict)  # {node: seconds}, without nodes that have no living rank
    empty_s: float | None = None
    cause: str = ""
    left: list = dataclasses.field(default_factory=list)  # descriptions of processes that were left, as str
    up: int = 0  # number of ranks that were up at the time of the fault
    problems: list = dataclasses.field(default_factory=list)
    output: str = ""


class HostPool:
    """Provides hosts for jobs that run one after the other. Makes new hosts after a fault that breaks them, and for
    another setup."""

    def __init__(self, user, roots=None):
        self._user = user
        self._roots = roots
        self._hosts = None
        self._setup = ""
        self.disk = None  # mounted on the hosts at STATE/disk once a cell needs it

    def get(self, setup="", with_disk=False):
        if setup != self._setup or (with_disk and not self.disk):
            self.drop()
        if with_disk and not self.disk:
            self.disk = SmallDisk()
        if self._hosts is None:
            self._setup = setup
            binds = {f"{STATE}/bin": BUILD / "bin", f"{STATE}/lib": BUILD / "lib", f"{STATE}/matrix": WORKER.parent}
            if self.disk:
                binds[f"{STATE}/disk"] = self.disk.path
            self._hosts = TestHosts(2, user=self._user, binds=binds, roots=self._roots,
                                    agent=BUILD / "bin" / "dslaunch-agent", **SETUPS.get(setup, {})).__enter__()
            if setup == "certificates only":
                give_certificate(self._hosts)
            # Checks that these hosts can run a job at all, so that their failure is not attributed to a fault.
            done = self._hosts.front.run([f"{STATE}/bin/dslaunch", "--hostfile", self._hosts.hostfile(2), "true"])
            if done.returncode != 0:
                raise RuntimeError(f"the test hosts cannot run a job:\n{done.stderr}")
        return self._hosts

    def drop(self):
        if self._hosts is not None:
            hosts, self._hosts = self._hosts, None
            hosts.close()

    def close(self):
        self.drop()
        if self.disk:
            self.disk.close()


def give_certificate(hosts):
    """Gives the front end's key a certificate of an authority that the nodes' sshds trust. The key alone is refused."""
    front, authority = hosts.front, f"{STATE}/user_ca"
    key = f"{front.home}/.ssh/id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", front.outside_path(authority)], check=True)
    public = subprocess.run(["ssh-keygen", "-y", "-f", front.outside_path(key)], check=True, capture_output=True, text=True)
    front.write_file(".ssh/id_ed25519.pub", public.stdout)
    subprocess.run(["ssh-keygen", "-q", "-s", front.outside_path(authority), "-I", "matrix", "-n", hosts.user,
                    front.outside_path(key + ".pub")], check=True)
    certificate = front.outside_path(key + "-cert.pub").read_text()
    front.write_file(".ssh/id_ed25519-cert.pub", certificate)


class CellRun:
    def __init__(self, cell, hosts, disk, user, times):
        self.cell, self.hosts, self.disk, self.user, self.times = cell, hosts, disk, user, times
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="dslaunch-matrix-"))
        os.chmod(self.folder, 0o777)
        self.result = Result(cell, user)
        self.watch = Watch(hosts)
        self.node = {node.name: node for node in hosts.nodes}
        self.acts = {  # {fault: function that injects it}
            "rank": lambda: self.kill("rank"), "grandchild": lambda: self.kill("grandchild"),
            "agent": lambda: self.kill("agent"), "supervisor": lambda: self.kill("supervisor"),
            "supervisor and agent": lambda: self.kill("supervisor", "agent"), "front end": lambda: self.kill("front end"),
            "power cut": lambda: self.each_node(lambda node: node.power_cut()),
            "network cut, in": lambda: self.cut(lambda node: node.cut_one_way("in")),
            "network cut, out": lambda: self.cut(lambda node: node.cut_one_way("out")),
            "network cut, both": lambda: self.cut(lambda node: node.link_down()),
            "cable out, short": lambda: self.each_node(self.unplug),
            "stop rank": lambda: self.kill("rank", number=signal.SIGSTOP),
            "stop agent": lambda: self.kill("agent", number=signal.SIGSTOP),
            "stop front end": lambda: self.kill("front end", number=signal.SIGSTOP),
            "stop front end, cont": lambda: self.kill("front end", number=signal.SIGSTOP),
            **dict.fromkeys(CUT_S, self.cut_front_end),
            "ssh reset": lambda: self.each_node(lambda node: node.reset_connections("sport = :22")),
            "rendezvous reset": lambda: self.each_node(
                lambda node: node.reset_connections(f"dst {self.node['node1'].address}")),
            "frozen log disk": self.freeze_disk,
            "full log disk": lambda: self.disk.fill(),
            "slow exec": lambda: None,  # execve is slow from the start of the job
            **{fault: lambda kinds=kinds: self.kill(*kinds) for fault, kinds in COPYING.items()},
            **{fault: lambda kinds=kinds: self.kill(*kinds) for fault, (kinds, _) in TRAINING.items()},
        }
        self.slow_exec = None

    def run(self):
        self.watch.start()
        self.start()
        try:
            self.reach_phase()
            self.result.up = len(list(self.folder.glob("up.*")))
            self.ranks = self.watch.of("rank")
            self.fault_at = time.time()
            self.acts[self.cell.fault]()
            self.after_the_fault()
            self.measure()
        except (TimeoutError, AssertionError, ProcessLookupError) as problem:
            self.result.problems.append(str(problem))
        finally:
            self.watch.stop()
            self.result.output = self.job.output
            self.end()
        return self.result

    # --- The job.

    def start(self):
        mode = {"finishing": "half", "teardown": "teardown"}.get(self.cell.phase, "wait")
        options, program = [*self.times.options], ["/usr/bin/python3"]
        if self.cell.fault in CUT_S:
            options += ["--lease_s", str(LEASE_OF_CUTS_S)]
        elif self.cell.fault in LOG_DISK:
            options += ["--log_dir", f"{STATE}/disk/logs"]
        elif self.cell.fault in COPYING:
            options += ["--memory_checkpoint", "1"]
        elif self.cell.fault == "slow exec":
            slow = self.folder / "slow"
            slow.write_text('#!/bin/sh\nexec /usr/bin/python3 "$@"\n')
            slow.chmod(0o755)
            self.slow_exec = SlowExec(slow, EXEC_S)
            program = [str(slow)]
        self.older_logs = self.front_end_logs()
        argv = [f"{STATE}/bin/dslaunch", "--hostfile", self.hosts.hostfile(2), "--num_gpus", "2", "--json", *options]
        if self.cell.fault in TRAINING:
            recipe = self.folder / "recipe.json"
            recipe.write_text(json.dumps(RECIPE))
            argv += ["train", str(recipe)]
        else:
            argv += [*program, "-I", "-S", f"{STATE}/matrix/{WORKER.name}", str(self.folder), mode]
        self.job = Job(lambda **files: self.hosts.front.popen(argv + self.extra_arguments(), stdin=subprocess.DEVNULL, **files),
                       self.folder)

    def extra_arguments(self):
        """Returns additional arguments of the worker."""
        if self.cell.fault in TRAINING:
            return []
        extra = []
        if self.user == "root" and find_cgroup_root():
            extra.append("wipe")
        if self.cell.fault in LOG_DISK:
            extra.append("lines")
        if self.cell.fault in COPYING:
            extra.append("copies")
        return extra

    def reach_phase(self):
        if self.cell.phase == "starting":
            return wait_until(self.is_starting, START_S, "the job starts", poll_s=0.001)
        if self.cell.fault in TRAINING:
            return self.wait(lambda: len(self.watch.of("rank")) == 4 and "step" in self.job.output, START_S, "it trains")
        self.wait(lambda: len(list(self.folder.glob("up.*"))) == 4 and len(self.watch.of("grandchild")) == 4, START_S,
                  "all ranks are up")
        if self.cell.phase == "running":
            return None
        (self.folder / "half").touch()
        left = 2 if self.cell.phase == "finishing" else 0
        return self.wait(lambda: len(self.watch.of("rank")) == left, START_S, f"all but {left} ranks have ended")

    def is_starting(self):
        """Returns whether every node has its agent and, if the fault needs it, its first rank. A node that will
        become silent must be logged in to, because a login has its own limit, --connect_timeout."""
        if self.cell.fault in ("rank", "grandchild", "stop rank"):
            kind = "grandchild" if self.cell.fault == "grandchild" else "rank"
            return all(self.watch.of(kind, node) for node in self.cell.nodes)
        if self.cell.fault.startswith(BREAKS_HOSTS) and not all(map(self.is_reached, self.cell.nodes)):
            return False
        return all(self.watch.of("agent", node) for node in self.node)

    def front_end_logs(self):
        return set(self.hosts.front.outside_path(".local/state/dslaunch/jobs").glob("*/dslaunch.log"))

    def is_reached(self, name):
        return any(f"{name} is reached" in log.read_text() for log in self.front_end_logs() - self.older_logs)

    def wait(self, condition, timeout_s, what):
        wait_until(lambda: condition() or not self.job.running(), timeout_s, what, poll_s=POLL_S)
        if not condition():
            raise AssertionError(f"dslaunch ended before {what}")

    # --- The fault.

    def kill(self, *kinds, number=signal.SIGKILL):
        """Sends a signal to one process of each kind on each node of the cell, or to the front end on its own host."""
        self.targets = []
        for host in self.cell.nodes or ("front",):
            for kind in kinds:
                seen = self.watch.of(kind, host)
                if not seen:
                    raise Missed(f"no {kind} on {host} to send a signal to")
                self.targets.append(max(seen, key=lambda process: process.rank))
        self.fault_at = time.time()
        for target in self.targets:
            try:
                os.kill(target.pid, number)
            except ProcessLookupError:
                raise Missed(f"{target.kind} {target.pid} on {target.host} had just ended") from None

    def each_node(self, act):
        threads = [threading.Thread(target=act, args=(self.node[name],)) for name in self.cell.nodes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def cut(self, act):
        self.each_node(act)
        late = [host for host in self.cell.nodes if not self.watch.of("agent", host)]
        if late and self.cell.phase == "teardown":  # teardown and cut may take equally long, so the node may have ended
            raise Missed(f"{' and '.join(late)} had just ended")

    def unplug(self, node):
        node.link_down()
        try:
            # TCP retransmits only once the cut's length has passed again, and later on busy cores.
            time.sleep(self.times.dead / 4)
        finally:
            node.link_up()

    def cut_front_end(self):
        self.hosts.front.link_down()
        try:
            time.sleep(CUT_S[self.cell.fault])
        finally:
            self.hosts.front.link_up()

    def freeze_disk(self):
        self.disk.freeze()
        try:
            time.sleep(FROZEN_S)
        finally:
            self.disk.thaw()

    def after_the_fault(self):
        """Reverts the fault if needed, and lets a job that continues finish."""
        if self.cell.fault == "stop rank":
            self.wait(lambda: self.job.output.count("was stopped by SIGSTOP") >= len(self.targets), KNOWN_S,
                      "the stopped ranks are reported")
            self.result.known_s = {target.host: time.time() - self.fault_at for target in self.targets}
            self.continue_targets()
        elif self.cell.fault == "stop front end, cont":
            time.sleep(STOP_S)
            self.continue_targets()
        elif self.cell.fault == "grandchild":
            time.sleep(0.3)
        if self.cell.expected.code == 0:
            (self.folder / "half").touch()
            (self.folder / "go").touch()

    def continue_targets(self):
        for target in self.targets:
            os.kill(target.pid, signal.SIGCONT)
        self.job.process.send_signal(signal.SIGCONT)  # needed because nsenter stops itself when its child stops

    # --- The judgement.

    def measure(self):
        known_s = known_within_s(self.cell, self.times)
        empty_s = known_s + self.times.grace + TEARDOWN_S + after_s(self.cell)
        result, expected = self.result, self.cell.expected
        is_stopped = self.cell.fault == "stop front end"
        deadline = time.time() + empty_s + 1
        while time.time() < deadline and (self.left() or (self.job.running() and not is_stopped)):
            time.sleep(POLL_S)
        left = self.left()
        result.left = [f"{seen.host}: {seen.kind} {seen.text}" for seen in left]
        if left:
            result.problems.append(f"{len(left)} processes left after {empty_s:.1f} s")
        else:
            gone = [at for seen, at in self.watch.gone_at.items() if not self.is_exempt(seen)]
            result.empty_s = max([0, *(at - self.fault_at for at in gone)])
        if is_stopped:
            self.continue_targets()
        if self.job.running():
            try:
                self.job.wait(empty_s if is_stopped else 1)
            except subprocess.TimeoutExpired:
                result.problems.append("dslaunch does not end")
        if self.cell.fault in (*COPYING, *TRAINING) and (holders := holders_of_memory(self.hosts)):
            result.problems.append(f"processes {holders} still have the memory of copies")
        if not self.job.running():
            result.code = self.job.wait(1)
            result.exit_s = self.job.ended_at - self.fault_at
        result.cause = cause_of(self.job.stderr)
        if expected.code is not None and result.code != expected.code:
            result.problems.append(f"exit code {result.code}, not {expected.code}")
        self.judge_cause()
        self.judge_goodput()
        if expected.known_s != "never":
            self.measure_known(known_s)

    def is_exempt(self, seen):
        """Returns whether `seen` is a stopped front end, which cannot end before it is continued."""
        return seen.kind == "front end" and self.cell.fault == "stop front end"

    def left(self):
        return [seen for seen in self.watch.now if not self.is_exempt(seen)]

    def judge_goodput(self):
        """Checks that the time of every rank is accounted for, whichever process died."""
        last = self.job.stdout.splitlines()[-1:]
        goodput = json.loads(last[0])["goodput"] if last and last[0].startswith("{") else None
        if goodput is None:
            return  # dslaunch was killed, or no rank was started
        whole, counted = goodput["wall_s"] * goodput["ranks"], sum(goodput["seconds"].values())
        if goodput["ranks"] != 4 or abs(whole - counted) > 0.01 * whole:
            self.result.problems.append(f"{counted:.1f} s of {whole:.1f} s are in the goodput")

    def judge_cause(self):
        pattern = self.cell.expected.cause
        if pattern is None:
            return
        ranks = [str(target.rank) for target in getattr(self, "targets", []) if target.rank >= 0]
        pattern = pattern.replace("{node}", "(" + "|".join(self.cell.nodes) + ")")
        pattern = pattern.replace("{rank}", "(" + "|".join(ranks) + ")")
        if not re.search(pattern, self.result.cause):
            self.result.problems.append(f"the cause does not name {pattern}")

    def measure_known(self, limit_s):
        """Records when each node knew: when its first rank got SIGTERM or, if no rank did, when its first rank had
        ended."""
        killed = {target.pid for target in getattr(self, "targets", [])}
        for name in self.node:
            if self.cell.fault == "power cut" and name in self.cell.nodes:
                continue
            times = []
            for seen in self.ranks:
                stamp = self.folder / f"term.{seen.rank}"
                if seen.host != name or seen.pid in killed:
                    continue
                if stamp.exists():
                    times.append(float(stamp.read_text()))
                elif seen in self.watch.gone_at:
                    times.append(self.watch.gone_at[seen])
            if times:
                self.result.known_s[name] = min(times) - self.fault_at
        for name, seconds in self.result.known_s.items():
            if seconds > limit_s:
                self.result.problems.append(f"{name} took {seconds:.1f} s to know, not {limit_s:.1f}")

    def end(self):
        """Kills all processes that are left, whatever dslaunch did."""
        if self.slow_exec:
            self.slow_exec.close()
        for seen in scan(self.hosts):
            try:
                os.kill(seen.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.disk:
            self.disk.empty()


def holders_of_memory(hosts):
    """Returns the processes of these hosts that have the memory of copies open."""
    holders = set()
    for pid in {seen.pid for seen in scan(hosts)}:
        try:
            names = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        except OSError:
            continue  # the process has ended
        if any(MEMORY_NAME in name for name in names):
            holders.add(pid)
    return holders


def cause_of(stderr):
    """Returns dslaunch's last line about the end of the job; "" if there is none."""
    lines = [line.removeprefix("dslaunch: ") for line in stderr.splitlines() if line.startswith("dslaunch: ")]
    if lines and lines[-1].startswith("nothing was started"):
        lines.pop()  # each node that failed has its own earlier line
    return lines[-1] if lines else ""


BREAKS_HOSTS = ("power cut", "network cut")


def run_cell(cell, pool, user, times):
    """Runs a cell and returns its result. Tries again if the phase was missed."""
    for _ in range(ATTEMPTS):
        try:
            hosts = pool.get(cell.setup, with_disk=cell.fault in LOG_DISK)
            return CellRun(cell, hosts, pool.disk, user, times).run()
        except Missed as missed:
            why = str(missed)
            if cell.fault.startswith(BREAKS_HOSTS):
                pool.drop()
    return Result(cell, user, problems=[f"missed {ATTEMPTS} times: {why}"])


def run_cells(cells, user, times, sets, report, roots=None):
    """Runs the cells on `sets` groups of hosts in parallel. Returns the results in the order of the cells."""
    todo, results, lock = queue.Queue(), {}, threading.Lock()
    for number, cell in enumerate(cells):
        todo.put((number, cell))

    def work():
        pool = HostPool(user, roots)
        try:
            while True:
                try:
                    number, cell = todo.get_nowait()
                except queue.Empty:
                    return
                result = run_cell(cell, pool, user, times)
                if cell.fault.startswith(BREAKS_HOSTS) or result.problems:
                    pool.drop()
                with lock:
                    results[number] = result
                    report(result)
        finally:
            pool.close()

    with concurrent.futures.ThreadPoolExecutor(sets) as workers:
        for done in [workers.submit(work) for _ in range(sets)]:
            done.result()
    return [results[number] for number in sorted(results)]


# --- printing ------------------------------------------------------------------------------------------------------


def seconds_text(value):
    return "-" if value is None else f"{value:.2f}"


def row(result):
    cell, expected = result.cell, result.cell.expected
    return [cell.fault, cell.phase, cell.where + (f", {cell.setup}" if cell.setup else ""),
            "none" if expected.code is None else str(expected.code),
            "none" if expected.code is None else str(result.code),
            seconds_text(result.known_s.get("node1")), seconds_text(result.known_s.get("node2")),
            seconds_text(result.empty_s), str(len(result.left)), result.cause.replace("|", "\\|")[:90] or "-",
            "; ".join(result.problems) or "ok"]


HEADER = ["dies", "when", "where", "expected", "code", "node1 knows", "node2 knows", "empty", "left", "cause named",
          "verdict"]


ELECTION_HEADER = ["dies", "where", "front end", "user", "expected", "code", "runs again", "empty", "verdict"]


def election_row(row):
    return [row.fault, row.where, row.front_end, row.user, "0", str(row.code), seconds_text(row.again_s), seconds_text(row.empty_s),
            "; ".join(row.problems) or "ok"]


def run_election_rows(users, only):
    rows = [election_rows.Row(*one) for one in election_rows.all_rows(users)]
    with concurrent.futures.ThreadPoolExecutor(2) as workers:
        done = workers.map(lambda row: election_rows.run_row(row.fault, row.where, row.user, row.is_attached),
                           [row for row in rows if only in str(row)])
        for row in done:
            print(f"{row.user:6} {str(row):46} " + "  ".join(election_row(row)[3:]), flush=True)
            if row.problems:
                print(row.output, flush=True)
            yield row


def markdown(results, elections, times):
    text = ["# The kill matrix", "", "Made by `" + COMMAND + "`; do not edit it.", "",
            f"Two nodes with two ranks each, grace {times.grace:g} s, a node is lost after {times.dead:g} s of silence"
            f" and the front end after {times.lease:g} s. node1 hosts the rendezvous. Times are seconds from the fault: until"
            " the ranks of each node got SIGTERM or were gone (or, for a stopped rank, until that was reported), and until"
            " no process of the job was left on any host. A dash: the node had no rank.", "",
            "Expected codes:", ""]
    for fault, (_, _, expected) in EXPECTED.items():
        code = "none" if expected.code is None else expected.code
        text.append(f"- {fault}: {code}; {expected.why}")
    for user in dict.fromkeys(result.user for result in results):
        text += ["", f"## As {'root, with a cgroup for each host' if user == 'root' else 'an ordinary user, without cgroups'}",
                 "", "| " + " | ".join(HEADER) + " |", "|" + " --- |" * len(HEADER)]
        text += ["| " + " | ".join(row(result)) + " |" for result in results if result.user == user]
    text += ["", "## Elections", "",
             "A job of three nodes with `--max_restarts 2 --nnodes 2:3` loses one while it runs. The two others continue in a"
             " second attempt, and end with 0. If node1 is lost, which hosts the rendezvous, they elect another host (detached),"
             " or the front end chooses one (attached, with `--lease_s 4`; one-way cuts only). The second attempt begins when no"
             " process of the first one runs. A cut is not healed: that node ends by itself. Seconds from the fault until all ranks"
             " run again, and from the request to end until no process is left on any node.", "",
             "| " + " | ".join(ELECTION_HEADER) + " |", "|" + " --- |" * len(ELECTION_HEADER)]
    text += ["| " + " | ".join(election_row(one)) + " |" for one in elections]
    return "\n".join(text) + "\n"


def print_result(result):
    print(f"{result.user:6} {str(result.cell):46} " + "  ".join(row(result)[3:]), flush=True)
    if result.problems:
        for line in [*result.left, *result.output.splitlines()]:
            print("        " + line, flush=True)


# --- latency -------------------------------------------------------------------------------------------------------


def latencies(user, repeat):
    """Returns {event: seconds in each of `repeat` runs}, measured on idle hosts."""
    found = {"an end is known on its own node": [], "an end is known everywhere": [], "a stop is reported": []}
    pool = HostPool(user)
    try:
        for _ in range(repeat):
            for fault in ("rank", "stop rank"):
                fault_cell = Cell(fault, "running", "node2", EXPECTED[fault][2])
                result = run_cell(fault_cell, pool, user, FAST)
                if result.problems:
                    sys.exit(f"{fault_cell}: {'; '.join(result.problems)}\n{result.output}")
                if fault == "rank":
                    found["an end is known on its own node"].append(result.known_s["node2"])
                    found["an end is known everywhere"].append(max(result.known_s.values()))
                else:
                    found["a stop is reported"].append(result.known_s["node2"])
    finally:
        pool.close()
    return found


def print_latencies(user, repeat):
    goals_s = {"an end is known on its own node": 0.1, "an end is known everywhere": 1, "a stop is reported": 0.1}
    print(f"As {user}, {repeat} times each, in ms:")
    for what, seconds in latencies(user, repeat).items():
        print(f"  {what:34} median {1000 * statistics.median(seconds):6.1f}   maximum {1000 * max(seconds):6.1f}"
              f"   goal {1000 * goals_s[what]:.0f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--user", choices=["root", "tester"], help="default: both, one after the other")
    parser.add_argument("--defaults", action="store_true", help="dslaunch's own times; takes half an hour")
    parser.add_argument("--only", default="", help="cells whose name ('agent / running / node2') contains this")
    parser.add_argument("--pairwise", action="store_true",
                        help="a part of the cells in which each pair of fault, phase and place still occurs")
    parser.add_argument("--roots", metavar="FRONT,NODE1,NODE2",
                        help="folders with an installed system each (sshd, python3), which are the hosts' disks")
    parser.add_argument("--repeat", type=int, help="runs of each cell (1); with --latency: of each figure (20)")
    parser.add_argument("--sets", type=int, default=3, help="groups of hosts side by side (3)")
    parser.add_argument("--markdown", metavar="FILE", help="writes the table there")
    parser.add_argument("--latency", action="store_true")
    arguments = parser.parse_args()
    reason = why_not()
    if reason:
        sys.exit(f"NOT RUN: {reason}")
    users = [arguments.user] if arguments.user else ["root", "tester"]
    if arguments.latency:
        for user in users:
            print_latencies(user, arguments.repeat or 20)
        return
    times = DEFAULTS if arguments.defaults else FAST
    cells = [cell for cell in all_cells() if arguments.only in str(cell)]
    cells = (pairwise(cells) if arguments.pairwise else cells) * (arguments.repeat or 1)
    roots = dict(zip(("front", "node1", "node2"), arguments.roots.split(","), strict=True)) if arguments.roots else None
    begin, results = time.time(), []
    for user in users:
        results += run_cells(cells, user, times, arguments.sets, print_result, roots)
    elections = [] if arguments.pairwise or roots else list(run_election_rows(users, arguments.only))
    if arguments.markdown:
        pathlib.Path(arguments.markdown).write_text(markdown(results, elections, times))
    bad = [result for result in results + elections if result.problems]
    print(f"{len(results) + len(elections)} cells in {time.time() - begin:.0f} s, {len(bad)} not as expected")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
