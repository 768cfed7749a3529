"""Tests training on two test hosts with the embedded trainer, and with an unchanged Python torch.distributed script."""

import json
import pathlib
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from hosts_case import ORACLE_PYTHON, HostsCase, main  # noqa: E402
from launcher_case import FASHION_MNIST, TEST_DATA  # noqa: E402

SCRIPT = pathlib.Path(__file__).with_name("ddp_script.py")


class Embedded(HostsCase):
    def test_loss_falls_and_logs_are_collected(self):
        metrics = self.folder / "metrics.jsonl"
        code, job = self.run_job(self.two_by_two(), "--log_dir", self.folder / "logs", "train", FASHION_MNIST,
                                 "--steps", 60, "--metrics_jsonl", metrics, timeout_s=240)
        self.assert_code(0, code, job)
        self.assert_presentable(job)
        self.assert_prints(job, r"(?i)accuracy")
        records = [json.loads(line) for line in metrics.read_text().splitlines()]
        losses = [record["loss"] for record in records if "loss" in record]
        self.assertGreaterEqual(len(losses), 60)
        self.assertLess(sum(losses[-10:]), 0.8 * sum(losses[:10]), "it learns nothing")
        self.assertEqual({"node1", "node2"}, {path.name for path in (self.folder / "logs").glob("**/nodes/*")})
        self.assert_nothing_left()


    def test_losses_equal_those_of_one_host(self):
        """The losses must be equal to the last bit, although sums pass from host to host and 16-bit gradients are
        sent in fp32."""
        path = self.folder / "recipe.json"
        for stage, bf16 in ((0, False), (0, True), (1, True), (2, False), (3, True)):
            path.write_text(json.dumps({
                "model": {"type": "mlp", "hidden_size": 512}, "data": {"type": "idx", "path": str(TEST_DATA)},
                "run": {"steps": 8, "seed": 1, "device": "cpu"},
                "engine": {"train_batch_size": 64, "optimizer": {"type": "AdamW", "params": {"lr": 0.001}},
                           "zero_optimization": {"stage": stage}, "bf16": {"enabled": bf16}}}))
            losses = []
            for where in (self.two_by_two(), ["--launcher", "local", "--num_gpus", "4"]):
                metrics = self.folder / "metrics.jsonl"
                metrics.unlink(missing_ok=True)
                code, job = self.run_job(where, "train", path, "--metrics_jsonl", metrics, timeout_s=120)
                self.assert_code(0, code, job)
                records = [json.loads(line) for line in metrics.read_text().splitlines()]
                losses.append([(record["loss"], record["grad_norm"]) for record in records if "grad_norm" in record])
            self.assertEqual(8, len(losses[0]), losses)
            self.assertEqual(losses[1], losses[0], f"stage {stage}, bf16 {bf16}")


class TorchDdp(HostsCase):
    def setUp(self):
        super().setUp()
        if not ORACLE_PYTHON.exists():
            self.fail(f"{ORACLE_PYTHON} is missing; packaging/fetch-oracle makes it")

    def test_ddp_script_trains_on_two_hosts(self):
        code, job = self.run_job(self.two_by_two(), ORACLE_PYTHON, SCRIPT, timeout_s=150)
        self.assert_code(0, code, job)
        self.assert_prints(job, r"\[node1:0\] world 4 hosts \['node1', 'node2'\] same weights True loss fell True")
        self.assert_nothing_left()


if __name__ == "__main__":
    main()
