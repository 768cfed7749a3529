"""What each node sends and receives in a training step, as the kernel counts it at its network interface: an all-reduce costs
every rank 2 (N - 1) / N times the gradients, a parameter server (N - 1) times in and out, so that it is linear in N.

DSLAUNCH_TEST_FULL=1 adds 8 nodes."""

import json
import os
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from hosts_case import HostsCase, main  # noqa: E402

NODES = (2, 4, 8) if os.environ.get("DSLAUNCH_TEST_FULL") == "1" else (2, 4)
WITHIN = 0.03
STEPS = (2, 12)  # of two runs: what the longer one has more is what steps cost
WIDTH = 512
PARAMETERS = 784 * WIDTH + WIDTH + WIDTH * 10 + 10
GRADIENT_BYTES = 4 * PARAMETERS  # fp32, as are the parameters


class TrafficTest(HostsCase):
    host_options = {"count": max(NODES)}

    def recipe(self, parallel, nodes):
        path = self.folder / "recipe.json"
        path.write_text(json.dumps({
            "model": {"type": "mlp", "hidden_size": WIDTH},
            "data": {"type": "idx", "path": "/usr/share/datasets/fashion-mnist"},
            "run": {"steps": 2, "seed": 1, "device": "cpu"},
            "engine": {"train_batch_size": 8 * nodes, "optimizer": {"type": "SGD", "params": {"lr": 0.01}},
                       "parallel": parallel}}))
        return path

    def counters(self, nodes):
        """(bytes received, bytes sent) at each node's interface, in its life."""
        counts = []
        for node in self.hosts.nodes[:nodes]:
            line, = (line for line in node.run(["cat", "/proc/net/dev"]).stdout.splitlines() if "eth0:" in line)
            fields = line.split(":")[1].split()
            counts.append((int(fields[0]), int(fields[8])))
        return counts

    def run_steps(self, parallel, nodes, steps):
        before = self.counters(nodes)
        code, job = self.run_job(
            "--hostfile", self.hosts.hostfile(slots=1), "--num_nodes", nodes, "--num_gpus", 1,
            "--log_dir", self.folder / "logs", "train", self.recipe(parallel, nodes), "--steps", steps,
            timeout_s=240)
        self.assert_code(0, code, job)
        after = self.counters(nodes)
        return [(b[0] - a[0], b[1] - a[1]) for a, b in zip(before, after)]

    def of_a_step(self, parallel, nodes):
        """(received, sent) by each node, in gradients' sizes."""
        short, long = (self.run_steps(parallel, nodes, steps) for steps in STEPS)
        scale = (STEPS[1] - STEPS[0]) * GRADIENT_BYTES
        return [tuple((b - a) / scale for a, b in zip(*pair)) for pair in zip(short, long)]

    def test_all_reduce(self):
        for nodes in NODES:
            for received, sent in self.of_a_step({"mode": "all_reduce"}, nodes):
                expected = 2 * (nodes - 1) / nodes
                print(f"all-reduce, {nodes} nodes: received {received:.3f}, sent {sent:.3f} (expected {expected:.3f})")
                self.assertAlmostEqual(received, expected, delta=WITHIN * expected)
                self.assertAlmostEqual(sent, expected, delta=WITHIN * expected)

    def test_parameter_server(self):
        for nodes in NODES:
            server, *workers = self.of_a_step({"mode": "parameter_server", "servers": 1}, nodes)
            print(f"parameter server, {nodes} nodes: received {server[0]:.3f}, sent {server[1]:.3f} (expected {nodes - 1})")
            for bytes_of_step in server:
                self.assertAlmostEqual(bytes_of_step, nodes - 1, delta=WITHIN * (nodes - 1))
            for worker in workers:
                for bytes_of_step in worker:
                    self.assertAlmostEqual(bytes_of_step, 1, delta=WITHIN)


if __name__ == "__main__":
    main()
