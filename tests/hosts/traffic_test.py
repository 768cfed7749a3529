"""What each node sends in a training step, as the kernel counts it at its network interface: an all-reduce costs every rank
2 (N - 1) / N times the gradients, a parameter server N - 1 times, so that it is linear in N, and each of its workers once.
Ranks that share a node cost it no more than one.

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

    def of_a_step(self, engine, nodes, ranks_each=1):
        """Sent by each node, in gradients' sizes."""
        short, long = (self.run_steps(engine, nodes, steps, ranks_each) for steps in STEPS)
        scale = (STEPS[1] - STEPS[0]) * GRADIENT_BYTES
        return [(more - less) / scale for less, more in zip(short, long)]

    def test_all_reduce(self):
        for nodes in NODES:
            for sent in self.of_a_step({"parallel": {"mode": "all_reduce"}}, nodes):
                expected = 2 * (nodes - 1) / nodes
                print(f"all-reduce, {nodes} nodes: sent {sent:.3f} (expected {expected:.3f})")
                self.assertAlmostEqual(sent, expected, delta=WITHIN * expected)

    def assert_sent(self, what, engine, expected, ranks_each):
        """By each node, however many ranks it has."""
        sent = self.of_a_step(engine, len(expected), ranks_each)
        print(f"{what}, {len(expected)} nodes of {ranks_each} ranks: sent {sent} (expected {expected})")
        for one, should in zip(sent, expected):
            self.assertAlmostEqual(one, should, delta=WITHIN * should)

    def test_ranks_of_a_node_send_one_sum(self):
        """To the next node; the result comes back the same way."""
        self.assert_sent("all-reduce", {"parallel": {"mode": "all_reduce"}}, [1, 1], 3)
        self.assert_sent("all-reduce", {"parallel": {"mode": "all_reduce"}}, [1, 2, 2, 1], 2)

    def test_zero_gathers_once_for_a_node(self):
        """Half of the parameters from each node, and the sums that are for the first one."""
        # Stage 3 gathers before the forward pass only: backwards the first layer's weights give no gradient to anything.
        for stage in (1, 2, 3):
            self.assert_sent(f"ZeRO {stage}", {"zero_optimization": {"stage": stage}}, [1.5, 1], 3)

    def test_parameter_server(self):
        for nodes in NODES:
            server, *workers = self.of_a_step({"parallel": {"mode": "parameter_server", "servers": 1}}, nodes)
            print(f"parameter server, {nodes} nodes: sent {server:.3f} (expected {nodes - 1:.3f})")
            self.assertAlmostEqual(server, nodes - 1, delta=WITHIN * (nodes - 1))
            for sent in workers:
                self.assertAlmostEqual(sent, 1, delta=WITHIN)


if __name__ == "__main__":
    main()
