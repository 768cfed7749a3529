#!/usr/bin/env python3
"""Runs a soak test: jobs on four test hosts, one after the other, with random faults while restarts are allowed.

sudo python3 tests/hosts/soak.py [--minutes M | --hours H] [--seed N] [--user root|tester]

Each job has a rank on each node and continues with two or more nodes. After its faults, everything that was cut is
healed, and the ranks may end. In every case:

an exit code of 0 means that all ranks of the last attempt succeeded
any other code has a cause that names a broken part, and does not occur if nothing was lost
no rank has two owners for longer than the loss of a node takes
no process is left on any host
"""

import argparse
import contextlib
import dataclasses
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from launcher_case import BUILD, Job, supervisors_and_agents  # noqa: E402
from small_disk import SmallDisk  # noqa: E402
from test_hosts import STATE, TestHosts, wait_until, why_not  # noqa: E402

WORKER = pathlib.Path(__file__).with_name("soak_worker.py")
NODES = 4
DEAD_S, LEASE_S, GRACE_S = 2, 12, 1
OPTIONS = ["--nnodes", f"2:{NODES}", "--max_restarts", "20", "--restart_delay_s", "0.1", "--grace", str(GRACE_S),
           "--heartbeat_s", "0.33", "--suspect_s", "1", "--dead_s", str(DEAD_S), "--lease_s", str(LEASE_S)]
OWNED_S = DEAD_S + GRACE_S + 5  # longest time in seconds by which an owner of a rank may outlive the loss of its node
UP_S = 30
END_S = 90
EMPTY_S = LEASE_S + GRACE_S + 30


@dataclasses.dataclass
class Fault:
    what: str
    names: tuple = ()  # one of these is in the cause of a job that the fault ends; empty if the fault ends no job
    breaks_host: bool = False


class Wrong(Exception):
    """A condition of the soak was violated."""


class SoakJob:
    def __init__(self, hosts, disk, dice):
        self.hosts, self.disk, self.dice = hosts, disk, dice
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="dslaunch-soak-"))
        self.folder.chmod(0o777)
        self.faults, self.healers = [], []
        self.signals = set()  # numbers of the signals sent to dslaunch
        self.cut_one_way = set()  # names of nodes; a node is cut only once, because healing reverts all its cuts
        self.began = time.time()
        argv = [f"{STATE}/bin/dslaunch", "--hostfile", hosts.hostfile(1), *OPTIONS, "--log_dir", f"{STATE}/disk/logs",
                "/usr/bin/python3", "-I", "-S", f"{STATE}/soak/{WORKER.name}", str(self.folder), str(OWNED_S)]
        self.job = Job(lambda **files: hosts.front.popen(argv, stdin=subprocess.DEVNULL, **files), self.folder)

    # --- faults ---

    @staticmethod
    def has_power(node):
        return os.path.exists(f"/proc/{node.init_pid}")

    def node(self):
        return self.dice.choice([node for node in self.hosts.nodes if self.has_power(node)])

    def later(self, seconds, heal):
        """Calls `heal` after `seconds`, or earlier when the faults end."""
        done = threading.Event()

        lock = threading.Lock()

        def once():
            with lock:
                if not done.is_set():
                    done.set()
                    heal()
        timer = threading.Timer(seconds, once)
        timer.start()
        self.healers.append((timer, once))

    def send(self, processes, number, what, node):
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)
        return Fault(f"{what} on {node.name}", (node.name,)) if processes else Fault(f"no {what} on {node.name}")

    def kill_rank(self):
        node = self.node()
        ranks = [process for process in node.processes() if f"{STATE}/soak/{WORKER.name}" in process.argv]
        fault = self.send(ranks, signal.SIGKILL, "kill rank", node)
        return dataclasses.replace(fault, names=(*fault.names, "SIGKILL")) if fault.names else fault

    def kill_agent(self, number=signal.SIGKILL):
        node = self.node()
        return self.send(supervisors_and_agents(node.processes())[1], number, f"{signal.Signals(number).name} to agent", node)

    def stop_agent(self):
        return self.kill_agent(signal.SIGSTOP)

    def kill_supervisor(self):
        node = self.node()
        return self.send(supervisors_and_agents(node.processes())[0], signal.SIGKILL, "kill supervisor", node)

    def cut_node(self):
        node, seconds = self.node(), self.dice.uniform(0.5, 8)
        node.link_down()
        self.later(seconds, node.link_up)
        return Fault(f"{node.name} cut for {seconds:.1f} s", (node.name,))

    def cut_node_one_way(self):
        node, seconds, direction = self.node(), self.dice.uniform(0.5, 8), self.dice.choice(["in", "out"])
        if node.name in self.cut_one_way:
            return Fault(f"{node.name} was cut one way already")
        self.cut_one_way.add(node.name)
        node.cut_one_way(direction)
        self.later(seconds, lambda: self.has_power(node) and node.heal())  # the node may have lost its power since then
        return Fault(f"{node.name} cut, {direction}, for {seconds:.1f} s", (node.name,))

    def cut_front_end(self):
        seconds = self.dice.uniform(0.5, LEASE_S - DEAD_S - 2)
        self.hosts.front.link_down()
        self.later(seconds, self.hosts.front.link_up)
        return Fault(f"front end cut for {seconds:.1f} s", self.while_starting("node"))

    def reset_ssh(self):
        node = self.node()
        node.reset_connections("sport = :22")
        return Fault(f"ssh reset on {node.name}", self.while_starting(node.name))

    def reset_rendezvous(self):
        node = self.node()
        node.reset_connections(f"dst {self.hosts.nodes[0].address}")
        return Fault(f"rendezvous reset on {node.name}", self.while_starting(node.name))

    def while_starting(self, name):
        """Returns (name,) before the first attempt runs, because the job cannot continue from anything yet; ()
        afterwards."""
        return () if list(self.folder.glob("up.*")) else (name,)

    def freeze_disk(self):
        seconds = self.dice.uniform(0.5, 8)
        try:
            self.disk.freeze()
        except OSError:
            return Fault("the disk was frozen already")
        self.later(seconds, self.disk.thaw)
        return Fault(f"log disk frozen for {seconds:.1f} s", self.while_starting("node"))

    def fill_disk(self):
        threading.Thread(target=self.disk.fill, daemon=True).start()  # a thread, because the disk may be frozen
        return Fault("log disk filled", self.while_starting("disk"))

    def pause_front_end(self):
        process = self.front_end()
        if process is None:
            return Fault("no front end to stop")
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(1)
        os.kill(process.pid, signal.SIGCONT)
        self.job.process.send_signal(signal.SIGCONT)  # needed because nsenter stops itself when its child stops
        return Fault("front end stopped for 1 s")

    def power_cut(self):
        node = self.node()
        node.power_cut()
        return Fault(f"power cut of {node.name}", (node.name,), breaks_host=True)

    def front_end(self):
        found = [process for process in self.hosts.front.processes() if process.name == "dslaunch"]
        return min(found, key=lambda process: process.pid) if found else None

    def signal_front_end(self, number):
        process = self.front_end()
        if process:
            self.signals.add(number)
            os.kill(process.pid, number)
        return Fault(f"{signal.Signals(number).name} to the front end", (signal.Signals(number).name,))

    def kill_front_end(self):
        return self.signal_front_end(signal.SIGKILL)

    def interrupt(self):
        return self.signal_front_end(signal.SIGINT)

    # The RARE faults end the job or make new hosts necessary.
    COMMON = (kill_rank, kill_agent, stop_agent, kill_supervisor, cut_node, cut_node_one_way, cut_front_end, reset_ssh,
              reset_rendezvous, freeze_disk, fill_disk, pause_front_end)
    RARE = (power_cut, kill_front_end, interrupt)

    # --- a job ---

    def run(self):
        try:
            if self.dice.random() < 0.8:
                wait_until(lambda: self.count("up.1.*") == NODES or not self.job.running(), UP_S, "all ranks are up")
            for _ in range(self.dice.randint(1, 4)):
                time.sleep(self.dice.uniform(0, 3))
                if not self.job.running():
                    break
                act = self.dice.choice(self.RARE if self.dice.random() < 0.08 else self.COMMON)
                self.faults.append(act(self))
            time.sleep(self.dice.uniform(0, 3))
            self.heal()
            (self.folder / "go").touch()
            self.judge(self.wait())
            self.expect_empty()
        finally:
            self.heal()
            self.clean_up()

    def heal(self):
        for timer, once in self.healers:
            timer.cancel()
            once()

    def wait(self):
        try:
            return self.job.wait(END_S)
        except subprocess.TimeoutExpired:
            raise Wrong(f"dslaunch does not end in {END_S} s") from None

    def count(self, pattern):
        return len(list(self.folder.glob(pattern)))

    def judge(self, code):
        if self.count("two_owners.*"):
            raise Wrong(f"two owners: {sorted(path.name for path in self.folder.glob('two_owners.*'))}")
        if code == 0:
            return self.expect_all_done()
        if signal.SIGKILL in self.signals:
            return None
        causes = [line for line in self.job.stderr.splitlines() if line.startswith("dslaunch: ")]
        names = [name for fault in self.faults for name in fault.names]
        if not names:
            raise Wrong(f"exit code {code}, and nothing was lost")
        if not any(re.search(rf"{re.escape(name)}", line) for line in causes for name in names):
            raise Wrong(f"exit code {code}, and no cause names any of {', '.join(names)}")
        return None

    def expect_all_done(self):
        last = max((int(path.name.split(".")[1]) for path in self.folder.glob("up.*")), default=0)
        done = list(self.folder.glob(f"done.{last}.*"))
        world_size = int(done[0].name.rsplit(".", 1)[1]) if done else 1
        if len(done) != world_size:
            raise Wrong(f"exit code 0, but of attempt {last} only {[path.name for path in done]}")

    def left(self):
        return [f"{host.name}: {process}" for host in [self.hosts.front, *self.hosts.nodes]
                if os.path.exists(f"/proc/{host.init_pid}") for process in host.processes()]

    def expect_empty(self):
        deadline = time.time() + EMPTY_S
        while left := self.left():
            if time.time() > deadline:
                raise Wrong("left: " + "; ".join(left))
            time.sleep(0.1)

    def clean_up(self):
        if self.job.running():
            self.job.process.kill()
        for host in [self.hosts.front, *self.hosts.nodes]:
            if os.path.exists(f"/proc/{host.init_pid}"):
                for process in host.processes():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process.pid, signal.SIGKILL)
        self.disk.empty()

    @property
    def needs_new_hosts(self):
        return any(fault.breaks_host for fault in self.faults)

    def summary(self):
        code = self.job.process.poll()
        return f"code {code} after {time.time() - self.began:.1f} s: " + "; ".join(fault.what for fault in self.faults)


def soak(seconds, seed, user, report=print):
    """Runs jobs for `seconds`. Returns the number of jobs that ran; raises Wrong with all details of the first
    failure."""
    dice = random.Random(seed)
    end = time.time() + seconds
    jobs, hosts, disk = 0, None, SmallDisk()
    try:
        while time.time() < end:
            if hosts is None:
                binds = {f"{STATE}/bin": BUILD / "bin", f"{STATE}/soak": WORKER.parent, f"{STATE}/disk": disk.path}
                hosts = TestHosts(NODES, user=user, binds=binds).__enter__()
            job = SoakJob(hosts, disk, dice)
            jobs += 1
            try:
                job.run()
            except (Wrong, TimeoutError) as wrong:
                raise Wrong(f"seed {seed}, job {jobs}: {wrong}\n{job.summary()}\n{job.job.output}") from None
            finally:
                shutil.rmtree(job.folder, ignore_errors=True)
            report(f"job {jobs}: {job.summary()}")
            if job.needs_new_hosts:
                hosts.close()
                hosts = None
    finally:
        if hosts is not None:
            hosts.close()
        disk.close()
    return jobs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=float, default=10)
    length.add_argument("--hours", type=float)
    parser.add_argument("--seed", type=int, default=None, help="of the faults; default: another one each time, printed")
    parser.add_argument("--user", choices=["root", "tester"], default="root")
    arguments = parser.parse_args()
    if reason := why_not():
        sys.exit(f"NOT RUN: {reason}")
    seconds = arguments.hours * 3600 if arguments.hours else arguments.minutes * 60
    seed = random.randrange(1 << 32) if arguments.seed is None else arguments.seed
    print(f"seed {seed}", flush=True)
    try:
        jobs = soak(seconds, seed, arguments.user, lambda line: print(line, flush=True))
    except Wrong as wrong:
        sys.exit(f"WRONG: {wrong}")
    print(f"{jobs} jobs, all as they must be")


if __name__ == "__main__":
    main()
