"""Compares 1-bit Adam (Tang et al., 2021) with Adam on two hosts with a slow link: the bytes that each sends, the time
of a step, and the loss of each step. The times are printed, not checked; tests/paper/tables makes a table of them.

Prints a line of JSON for each optimizer and rate. DSLAUNCH_TEST_FULL=1 runs more steps, and a faster link too."""

import json
import os
import statistics
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from hosts_case import ROOT, HostsCase, main  # noqa: E402

FULL = os.environ.get("DSLAUNCH_TEST_FULL") == "1"
RATES = ("100mbit", "1gbit") if FULL else ("100mbit",)
STEPS, WARM_UP = (400, 100) if FULL else (120, 40)  # during the warm-up, 1-bit Adam sends as much as Adam
# A weight without gradients in the warm-up gets a variance near 0, and compressed momentum then makes its steps far too
# large. So the model has no ReLUs, which may be dead, and no inputs that are always 0.
BLOCK = 64
MODEL = {"type": "gpt2", "n_layer": 2, "n_embd": 128, "n_head": 4, "n_positions": BLOCK, "vocab_size": 256,
         "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
PARAMS = {"lr": 0.001, "betas": [0.9, 0.95]}  # betas that give an accurate variance after so short a warm-up
TEXT = sorted((ROOT / "docs").glob("*.md"))
LOSS_WITHIN = 0.1  # limit for the loss of the last tenth of the steps, relative to Adam's loss
OPTIMIZERS = {"Adam": {}, "OneBitAdam": {"freeze_step": WARM_UP}}


class OneBitAdamTest(HostsCase):
    def limit(self, rate):
        for node in self.hosts.nodes:
            done = node.run(["tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "256kb",
                             "latency", "200ms"])
            self.assertEqual(0, done.returncode, done.stderr)

    def train(self, optimizer, rate):
        recipe, metrics = (self.folder / f"{optimizer}.{rate}.{kind}" for kind in ("json", "jsonl"))
        text = self.folder / "text"
        text.write_bytes(b"".join(file.read_bytes() for file in TEXT))
        recipe.write_text(json.dumps({
            "model": MODEL,
            "data": {"type": "text", "path": str(text), "block_size": BLOCK},
            "run": {"steps": STEPS, "seed": 1, "device": "cpu", "metrics_jsonl": str(metrics)},
            "engine": {"train_batch_size": 16, "optimizer": {"type": optimizer, "params": {**PARAMS, **OPTIMIZERS[optimizer]}}}}))
        before = [node.sent_bytes() for node in self.hosts.nodes]
        code, job = self.run_job("--hostfile", self.hosts.hostfile(slots=1), "--num_gpus", 1, "--log_dir", self.folder / "logs",
                                 "train", recipe, timeout_s=300)
        self.assert_code(0, code, job)
        sent = max(node.sent_bytes() - was for node, was in zip(self.hosts.nodes, before))
        records = [json.loads(line) for line in metrics.read_text().splitlines()]
        steps = [record for record in records if "eval" not in record]
        self.assertEqual(STEPS, len(steps), job.output)
        losses = [step["loss"] for step in steps]
        found = {"optimizer": optimizer, "rate": rate, "steps": STEPS, "warm_up": WARM_UP, "sent": sent,
                 "step_s": statistics.median(step["step_s"] for step in steps[WARM_UP:]),
                 "losses": {at: statistics.fmean(losses[at - STEPS // 10:at]) for at in range(STEPS // 10, STEPS + 1, STEPS // 10)}}
        print(json.dumps(found))
        return found

    def test_one_bit_adam_sends_less_and_learns_alike(self):
        for rate in RATES:
            self.limit(rate)
            adam, one_bit = (self.train(optimizer, rate) for optimizer in OPTIMIZERS)
            # After the warm-up, 1-bit Adam sends 1 bit instead of 32 bits per element, and a scale.
            expected = WARM_UP / STEPS + (1 - WARM_UP / STEPS) / 32
            self.assertAlmostEqual(one_bit["sent"] / adam["sent"], expected, delta=0.1 * expected)
            self.assertLess(abs(one_bit["losses"][STEPS] - adam["losses"][STEPS]), LOSS_WITHIN * adam["losses"][STEPS])


if __name__ == "__main__":
    main()
