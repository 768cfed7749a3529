"""dslaunch-train computes what PyTorch's DistributedDataParallel computes: same seed, same data order, same losses."""

import json
import re
import unittest

import oracle
from spawn import recipe, run, run_with_metrics

SGD = {"type": "SGD", "params": {"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-4}}
ADAM = {"type": "Adam", "params": {"lr": 0.002, "betas": [0.9, 0.98], "weight_decay": 0.01}}
PLAIN_ADAM = {"type": "Adam", "params": {"lr": 0.002, "weight_decay": 0.01, "adam_w_mode": False}}
NO_CLIPPING = {"gradient_clipping": 0}

MODELS_AND_OPTIMIZERS = [
    recipe("mlp", SGD, NO_CLIPPING),
    recipe("mlp", ADAM, NO_CLIPPING),
    recipe("cnn", SGD, NO_CLIPPING),
    recipe("cnn", ADAM, NO_CLIPPING),
]
SETTINGS = [
    recipe("mlp", PLAIN_ADAM, NO_CLIPPING),
    recipe("mlp", SGD, {"gradient_clipping": 0.3}),
    recipe("mlp", SGD, {"gradient_accumulation_steps": 4}),
    recipe("mlp", SGD, dict(NO_CLIPPING, train_batch_size=17920), {"steps": 8, "seed": 3}),  # into a third epoch
    recipe("mlp", SGD, NO_CLIPPING, data={"shuffle": False}),
    recipe("mlp", {"type": "Adagrad"}, {"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10}}}),
    recipe("mlp", {"type": "RMSprop", "params": {"lr": 1e-4, "momentum": 0.9}},
           {"scheduler": {"type": "CosineAnnealingWarmRestarts", "params": {"T_0": 5, "T_mult": 2}}}),
    recipe("mlp", {"type": "Lamb", "params": {"weight_decay": 0.01}},
           {"scheduler": {"type": "WarmupCosineLR", "params": {"warmup_num_steps": 5, "total_num_steps": 20}}}),
    recipe("mlp", {"type": "Lion", "params": {"lr": 1e-4, "betas": [0.9, 0.99]}},
           {"scheduler": {"type": "StepLR", "params": {"step_size": 7}}}),
]


class ParityTest(unittest.TestCase):
    def check(self, table, world):
        for expected, wanted in zip(oracle.run(table, world), table, strict=True):
            with self.subTest(world=world, recipe=json.dumps(wanted)):
                ranks, metrics = run_with_metrics(wanted, world)
                steps, correct = expected
                self.assertEqual([m["step"] for m in metrics], list(range(1, len(steps) + 1)))
                for metric, (loss, norm, lr) in zip(metrics, steps):
                    self.assertLess(abs(metric["loss"] - loss) / loss, 1e-4, metric)
                    self.assertLess(abs(metric["grad_norm"] - norm) / norm, 1e-3, metric)
                    self.assertLess(abs(metric["lr"] - lr), 1e-9, metric)
                # Before the first update only initial weights and data order count.
                self.assertLess(abs(metrics[0]["loss"] - steps[0][0]) / steps[0][0], 1e-6)
                got = int(re.search(r"test accuracy .*\((\d+) of 10000\)", ranks[0].out)[1])
                self.assertLessEqual(abs(got - correct), 10)  # samples on the edge may round to the other side

    def test_two_ranks_equal_ddp(self):
        self.check(MODELS_AND_OPTIMIZERS + SETTINGS, 2)

    def test_four_ranks_equal_ddp(self):
        self.check(MODELS_AND_OPTIMIZERS, 4)

    def test_grouping_of_ranks_changes_nothing(self):
        for model in ("mlp", "cnn"):
            wanted = recipe(model, ADAM, run={"steps": 60, "seed": 5})
            _, one_node = run_with_metrics(wanted, 4, local_world=4)
            _, two_nodes = run_with_metrics(wanted, 4, local_world=2)
            for a, b in zip(one_node, two_nodes, strict=True):
                self.assertLess(abs(a["loss"] - b["loss"]) / a["loss"], 1e-5, model)

    def test_reports(self):
        # Three ranks do not divide the 10000 test samples: each must still count once.
        ranks = run(recipe(run={"epochs": 1, "seed": 1, "eval_every": 100},
                           engine={"train_batch_size": 240, "steps_per_print": 100}), 3)
        self.assertEqual([rank.code for rank in ranks], [0, 0, 0])
        out = ranks[0].out.splitlines()
        self.assertRegex(out[0], r"^training mlp \(101770 parameters\) on .*: 60000 samples, 250 steps of 240")
        self.assertRegex(ranks[0].out, r"(?m)^step 100/250: loss \d\.\d+, lr 0\.05, \d+ samples/s$")
        self.assertRegex(ranks[0].out, r"(?m)^step 200: test accuracy \d\d\.\d\d% \(\d+ of 10000\), loss 0\.\d+$")
        self.assertRegex(out[-2], r"^epoch 1/1: loss \d\.\d{4}, \d+ samples/s$")
        self.assertRegex(out[-1], r"^test accuracy \d\d\.\d\d% \(\d+ of 10000\), loss 0\.\d+$")
        self.assertEqual(ranks[1].out + ranks[2].out, "")
        for rank in ranks:
            status = [json.loads(line) for line in rank.status.splitlines()]
            self.assertEqual(status[0], {"event": "ready"})
            self.assertEqual((status[-1]["step"], status[-1]["total_steps"]), (250, 250))
            self.assertTrue(all(line["event"] == "step" and line.get("loss", 1) > 0 for line in status[1:]))


if __name__ == "__main__":
    unittest.main()
