"""What each node sends in a training step, as the kernel counts it at its network interface: an all-reduce costs every rank
2 (N - 1) / N times the gradients, a parameter server N - 1 times, so that it is linear in N, and each of its workers once.

What is received is what others send; veth's own counter of it lacks a part (Linux 6.18). DSLAUNCH_TEST_FULL=1 adds 8 nodes."""

import json
import os
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from hosts_case import AGENT, HostsCase, main  # noqa: E402
from launcher_case import TEST_DATA  # noqa: E402

NODES = (2, 4, 8) if os.environ.get("DSLAUNCH_TEST_FULL") == "1" else (2, 4)
WITHIN = 0.03
STEPS = (2, 12)  # of two runs: what the longer one has more is what steps cost
WIDTH = 512
PARAMETERS = 784 * WIDTH + WIDTH + WIDTH * 10 + 10
GRADIENT_BYTES = 4 * PARAMETERS  # fp32, as are the parameters


class TrafficTest(HostsCase):
    host_options = {"count": max(NODES), "agent": AGENT}

    def recipe(self, parallel, nodes):
        path = self.folder / "recipe.json"
        path.write_text(json.dumps({
            "model": {"type": "mlp", "hidden_size": WIDTH},
            "data": {"type": "idx", "path": str(TEST_DATA)},
            "run": {"steps": 2, "seed": 1, "device": "cpu"},
            "engine": {"train_batch_size": 8 * nodes, "optimizer": {"type": "SGD", "params": {"lr": 0.01}},
                       "parallel": parallel}}))
        return path

    def run_steps(self, parallel, nodes, steps):
        hosts = self.hosts.nodes[:nodes]
        before = [host.sent_bytes() for host in hosts]
        code, job = self.run_job(
            "--hostfile", self.hosts.hostfile(slots=1), "--num_nodes", nodes, "--num_gpus", 1,
            "--log_dir", self.folder / "logs", "train", self.recipe(parallel, nodes), "--steps", steps,
            timeout_s=240)
        self.assert_code(0, code, job)
        return [host.sent_bytes() - sent for host, sent in zip(hosts, before)]

    def of_a_step(self, parallel, nodes):
        """Sent by each node, in gradients' sizes."""
        short, long = (self.run_steps(parallel, nodes, steps) for steps in STEPS)
        scale = (STEPS[1] - STEPS[0]) * GRADIENT_BYTES
        return [(more - less) / scale for less, more in zip(short, long)]

    def test_all_reduce(self):
        for nodes in NODES:
            for sent in self.of_a_step({"mode": "all_reduce"}, nodes):
                expected = 2 * (nodes - 1) / nodes
                print(f"all-reduce, {nodes} nodes: sent {sent:.3f} (expected {expected:.3f})")
                self.assertAlmostEqual(sent, expected, delta=WITHIN * expected)

    def test_parameter_server(self):
        for nodes in NODES:
            server, *workers = self.of_a_step({"mode": "parameter_server", "servers": 1}, nodes)
            print(f"parameter server, {nodes} nodes: sent {server:.3f} (expected {nodes - 1:.3f})")
            self.assertAlmostEqual(server, nodes - 1, delta=WITHIN * (nodes - 1))
            for sent in workers:
                self.assertAlmostEqual(sent, 1, delta=WITHIN)


if __name__ == "__main__":
    main()
