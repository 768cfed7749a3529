"""Checks the bytes that each node sends in a training step, from the kernel's counters of its network interface. In an
all-reduce, every rank sends 2 (N - 1) / N times the gradients. A parameter server sends them N - 1 times, which is
linear in N, and each of its workers once. Several ranks on a node send no more than one rank.

Received bytes are not checked, because veth's own counter of them is incomplete (Linux 6.18). DSLAUNCH_TEST_FULL=1 adds
8 nodes."""

import json
import os
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from hosts_case import AGENT, HostsCase, main  # noqa: E402
from launcher_case import TEST_DATA  # noqa: E402

NODES = (2, 4, 8) if os.environ.get("DSLAUNCH_TEST_FULL") == "1" else (2, 4)
WITHIN = 0.03
STEPS = (2, 12)  # steps of two runs, whose difference is the cost of 10 steps
WIDTH = 512
PARAMETERS = 784 * WIDTH + WIDTH + WIDTH * 10 + 10
GRADIENT_BYTES = 4 * PARAMETERS  # both gradients and parameters are fp32


class TrafficTest(HostsCase):
    host_options = {"count": max(NODES), "agent": AGENT}

    def recipe(self, engine, ranks):
        path = self.folder / "recipe.json"
        path.write_text(json.dumps({
            "model": {"type": "mlp", "hidden_size": WIDTH},
            "data": {"type": "idx", "path": str(TEST_DATA)},
            "run": {"steps": 2, "seed": 1, "device": "cpu"},
            "engine": {"train_batch_size": 8 * ranks, "optimizer": {"type": "SGD", "params": {"lr": 0.01}}, **engine}}))
        return path

    def run_steps(self, engine, nodes, steps, ranks_each):
        hosts = self.hosts.nodes[:nodes]
        before = [host.sent_bytes() for host in hosts]
        code, job = self.run_job(
            "--hostfile", self.hosts.hostfile(slots=ranks_each), "--num_nodes", nodes, "--num_gpus", ranks_each,
            "--log_dir", self.folder / "logs", "train", self.recipe(engine, nodes * ranks_each), "--steps", steps,
            timeout_s=240)
        self.assert_code(0, code, job)
        return [host.sent_bytes() - sent for host, sent in zip(hosts, before)]

    def sent_per_step(self, engine, nodes, ranks_each=1):
        """Returns the bytes that each node sends in a step, in units of the gradients' size."""
        short, long = (self.run_steps(engine, nodes, steps, ranks_each) for steps in STEPS)
        scale = (STEPS[1] - STEPS[0]) * GRADIENT_BYTES
        return [(more - less) / scale for less, more in zip(short, long)]

    def test_all_reduce_sends_2n_minus_2_over_n_gradients(self):
        for nodes in NODES:
            for sent in self.sent_per_step({"parallel": {"mode": "all_reduce"}}, nodes):
                expected = 2 * (nodes - 1) / nodes
                print(f"all-reduce, {nodes} nodes: sent {sent:.3f} (expected {expected:.3f})")
                self.assertAlmostEqual(sent, expected, delta=WITHIN * expected)

    def assert_sent(self, what, engine, expected, ranks_each):
        """Checks the bytes that each node sends, for any number of ranks per node."""
        sent = self.sent_per_step(engine, len(expected), ranks_each)
        print(f"{what}, {len(expected)} nodes of {ranks_each} ranks: sent {sent} (expected {expected})")
        for one, should in zip(sent, expected):
            self.assertAlmostEqual(one, should, delta=WITHIN * should)

    def test_ranks_of_a_node_send_one_sum(self):
        """The sum is sent to the next node, and the result returns in the same way."""
        self.assert_sent("all-reduce", {"parallel": {"mode": "all_reduce"}}, [1, 1], 3)
        self.assert_sent("all-reduce", {"parallel": {"mode": "all_reduce"}}, [1, 2, 2, 1], 2)

    def test_zero_gathers_once_per_node(self):
        """Each node sends its half of the parameters. In addition, the first node sends its whole sum, and the
        second node sends the first node's half."""
        # Stage 3 gathers only before the forward pass, because in the backward pass no gradient needs the first layer's
        # weights.
        for stage in (1, 2, 3):
            self.assert_sent(f"ZeRO {stage}", {"zero_optimization": {"stage": stage}}, [1.5, 1], 3)

    def test_parameter_server_sends_n_minus_1_gradients(self):
        for nodes in NODES:
            server, *workers = self.sent_per_step({"parallel": {"mode": "parameter_server", "servers": 1}}, nodes)
            print(f"parameter server, {nodes} nodes: sent {server:.3f} (expected {nodes - 1:.3f})")
            self.assertAlmostEqual(server, nodes - 1, delta=WITHIN * (nodes - 1))
            for sent in workers:
                self.assertAlmostEqual(sent, 1, delta=WITHIN)


if __name__ == "__main__":
    main()
