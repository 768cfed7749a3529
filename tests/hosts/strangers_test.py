"""Trains on two hosts while foreign processes probe every listening socket: from a third host, and as other users of
the two hosts."""

import json
import os
import pathlib
import subprocess
import sys
import threading
import time

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from hosts_case import AGENT, HostsCase, main  # noqa: E402
from launcher_case import FASHION_MNIST  # noqa: E402
from test_hosts import sockets_of, tcp_sockets  # noqa: E402

SUPPORT = pathlib.Path(__file__).resolve().parents[1] / "support"
OTHER_USER = 65534
STEPS = 1000  # enough steps for the strangers to try most of their inputs, even on a busy machine
SSH_PORT = 22
LONG_OPEN_S = 3  # time in which a stranger tries all ports several times


def listening(host):
    """Returns {(port, inode)} of the listening TCP sockets in a host's network."""
    return tcp_sockets(host.init_pid, "0A")


def listening_locally(host):
    """Returns {(path, inode)} of the Unix sockets in a host's network that accept connections. Abstract names begin
    with "@"."""
    found = set()
    for line in pathlib.Path(f"/proc/{host.init_pid}/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "00010000" and len(fields) > 7:
            found.add((fields[7], fields[6]))
    return found


def owner(host, inode):
    """Returns the name of the host's process that has the socket open; None if the process has ended."""
    for process in host.processes():
        try:
            if inode in sockets_of(process.pid):
                return process.name
        except OSError:
            pass
    return None


class Watch(threading.Thread):
    """Finds listening sockets while a job runs. Sends them to the strangers, together with data that clients were
    recorded to send to these sockets."""

    def __init__(self, nodes, strangers, recordings):
        super().__init__(daemon=True)
        self.nodes, self.strangers, self.recordings = nodes, strangers, recordings
        self.owners = {}  # {(node name, port): process name}
        self.local_owners = {}  # {(node name, path of a Unix socket): process name}
        self.sent = {}  # {(node name, port): (inode, number of recordings)} as last sent to the strangers
        self.first_sent_s = {}  # {(node name, port): time of the first sending}
        self.open_s = {}  # {(node name, port): seconds for which it stayed open since then}
        self.over = threading.Event()

    def run(self):
        while not self.over.wait(0.2):
            for node in self.nodes:
                try:
                    recorded = json.loads(self.recordings[node.name].read_text())
                except OSError:
                    recorded = {}
                for port, inode in listening(node):
                    replies = recorded.get(str(port), [])
                    if (node.name, port) in self.first_sent_s:
                        self.open_s[node.name, port] = time.monotonic() - self.first_sent_s[node.name, port]
                    if port == SSH_PORT or self.sent.get((node.name, port)) == (inode, len(replies)):
                        continue
                    name = owner(node, inode)
                    if name is None:
                        continue
                    self.owners[node.name, port] = name
                    self.sent[node.name, port] = inode, len(replies)
                    self.first_sent_s.setdefault((node.name, port), time.monotonic())
                    for stranger, address in self.strangers:
                        if address is None or stranger.node is node:
                            self.send_order(stranger, {"host": address or node.address, "port": port, "recorded": replies})
                for path, inode in listening_locally(node):
                    name = owner(node, inode)
                    if name is None or (node.name, path) in self.local_owners:
                        continue
                    self.local_owners[node.name, path] = name
                    for stranger, address in self.strangers:
                        if address is not None and stranger.node is node:
                            self.send_order(stranger, {"host": None, "port": path, "recorded": []})

    @staticmethod
    def send_order(stranger, order):
        stranger.stdin.write((json.dumps(order) + "\n").encode())
        stranger.stdin.flush()


class Strangers(HostsCase):
    host_options = {"count": 3, "agent": AGENT}

    def train(self, folder):
        """Trains on node1 and node2; returns (exit code, Job, losses by step)."""
        metrics = self.folder / folder / "metrics.jsonl"
        metrics.parent.mkdir()
        code, job = self.run_job("--hostfile", self.hosts.hostfile(text="node1 slots=2\nnode2 slots=2\n"),
                                 "train", FASHION_MNIST, "--steps", STEPS, "--metrics_jsonl", metrics, timeout_s=240)
        losses = {}
        if metrics.exists():
            for line in metrics.read_text().splitlines():
                entry = json.loads(line)
                if "loss" in entry:
                    losses[entry["step"]] = entry["loss"]
        return code, job, losses

    def start_stranger(self, node, uid):
        argv = ["nsenter", f"--target={node.init_pid}", "--net", "--mount", "--", "setpriv", f"--reuid={uid}", f"--regid={uid}",
                "--clear-groups", sys.executable, str(self.folder / "stranger.py")]
        stranger = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        stranger.node = node
        self.addCleanup(stranger.kill)
        return stranger

    def test_strangers_do_not_change_losses(self):
        code, job, undisturbed = self.train("undisturbed")
        self.assert_code(0, code, job)
        self.assertEqual(STEPS, max(undisturbed))

        node1, node2, third = self.hosts.nodes
        # The script is copied to a folder that another user can read.
        (self.folder / "stranger.py").write_text((SUPPORT / "stranger.py").read_text())
        os.chmod(self.folder / "stranger.py", 0o644)
        recordings, sniffers = {}, []
        for node in (node1, node2):
            recordings[node.name] = self.folder / f"recorded.{node.name}"
            sniffers.append(subprocess.Popen(
                ["nsenter", f"--target={node.init_pid}", "--net", "--", sys.executable, str(SUPPORT / "sniffer.py"),
                 str(recordings[node.name])], stdin=subprocess.PIPE))
            self.addCleanup(sniffers[-1].kill)
        strangers = [(self.start_stranger(third, 0), None)]
        for node in (node1, node2):
            strangers.append((self.start_stranger(node, OTHER_USER), "127.0.0.1"))
        watch = Watch([node1, node2], strangers, recordings)
        watch.start()
        code, job, losses = self.train("disturbed")
        watch.over.set()
        watch.join()
        reports = []
        for stranger, _ in strangers:
            output, _ = stranger.communicate(timeout=60)
            reports.append([json.loads(line) for line in output.decode().splitlines()])
        for sniffer in sniffers:
            sniffer.communicate(timeout=10)

        self.assert_code(0, code, job)
        self.assertEqual(undisturbed, losses)
        # Only agents may listen, and strangers must have connected to each port that was open long enough.
        self.assertTrue(all(name.startswith(("dslaunch-agent", "agent-")) for name in watch.owners.values()), watch.owners)
        for node in (node1, node2):
            self.assertTrue(any(name == node.name for name, _ in watch.owners), watch.owners)
        long_open = {port for (_, port), seconds in watch.open_s.items() if seconds > LONG_OPEN_S}
        self.assertTrue(long_open, watch.open_s)
        # The port that a node would give to rank 0's store accepts only the first few connections.
        reached = {port["port"] for report in reports for port in report if port["connected"]}
        self.assertEqual(set(), long_open - reached, reports)
        for report in reports:
            self.assertGreater(sum(port["connected"] for port in report), 50, reports)
        # Each node has a Unix socket for its ranks, to which other users must not be able to connect.
        for node in (node1, node2):
            self.assertTrue(any(name == node.name and "ranks" in path for name, path in watch.local_owners),
                            watch.local_owners)
        local = [port for report in reports for port in report if port["host"] is None]
        self.assertEqual(len(watch.local_owners), len(local))
        self.assertEqual(0, sum(port["connected"] for port in local), local)
        self.assert_nothing_left()

    def test_ranks_open_no_port_on_one_host(self):
        node1 = self.hosts.nodes[0]
        for slots in (1, 2):
            job = self.start("--hostfile", self.hosts.hostfile(text=f"node1 slots={slots}\n"), "train", FASHION_MNIST,
                             "--steps", STEPS)
            while_training = set()
            while job.running():
                if node1.named("dslaunch-train"):
                    while_training |= {port for port, _ in listening(node1) if port != SSH_PORT}
                time.sleep(0.1)
            self.assert_code(0, self.wait(job), job)
            self.assertEqual(set(), while_training, f"{slots} ranks")


if __name__ == "__main__":
    main()
