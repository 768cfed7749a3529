"""Training on two test hosts: the embedded trainer, and a Python torch.distributed script that runs unchanged."""

import json
import pathlib
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from hosts_case import ORACLE_PYTHON, HostsCase, main  # noqa: E402
from launcher_case import FASHION_MNIST  # noqa: E402

SCRIPT = pathlib.Path(__file__).with_name("ddp_script.py")


class Embedded(HostsCase):
    def test_training(self):
        metrics = self.folder / "metrics.jsonl"
        code, job = self.run_job(self.two_by_two(), "--log_dir", self.folder / "logs", "train", FASHION_MNIST,
                                 "--steps", 60, "--metrics_jsonl", metrics, timeout_s=240)
        self.assert_code(0, code, job)
        self.assert_presentable(job)
        self.assert_says(job, r"(?i)accuracy")
        records = [json.loads(line) for line in metrics.read_text().splitlines()]
        losses = [record["loss"] for record in records if "loss" in record]
        self.assertGreaterEqual(len(losses), 60)
        self.assertLess(sum(losses[-10:]), 0.8 * sum(losses[:10]), "it learns nothing")
        self.assertEqual({"node1", "node2"}, {path.name for path in (self.folder / "logs").glob("**/nodes/*")})
        self.assert_nothing_left()


class TorchDdp(HostsCase):
    def setUp(self):
        super().setUp()
        if not ORACLE_PYTHON.exists():
            self.fail(f"{ORACLE_PYTHON} is missing; packaging/fetch-oracle makes it")

    def test_two_hosts(self):
        code, job = self.run_job(self.two_by_two(), ORACLE_PYTHON, SCRIPT, timeout_s=150)
        self.assert_code(0, code, job)
        self.assert_says(job, r"\[node1:0\] world 4 hosts \['node1', 'node2'\] same weights True loss fell True")
        self.assert_nothing_left()


if __name__ == "__main__":
    main()
