"""Tests that dslaunch-train computes the same as PyTorch: same initial weights, same data order, same losses and
gradients."""

import json
import os
import re
import shutil
import tempfile
import unittest

import torch
from safetensors.torch import load_file, save_file

import oracle
from gpt2 import Gpt2
from inputs import samples_of, write_idx_part, write_text
from spawn import WHOLE_DATA, recipe, run, run_with_metrics
from table import all_cells, pairwise_cells

SGD = {"type": "SGD", "params": {"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-4}}
ADAM = {"type": "Adam", "params": {"lr": 0.002, "betas": [0.9, 0.98], "weight_decay": 0.01}}
PLAIN_ADAM = {"type": "Adam", "params": {"lr": 0.002, "weight_decay": 0.01, "adam_w_mode": False}}
NO_CLIPPING = {"gradient_clipping": 0}

# The factors of the table. Every cell runs 20 steps.
FACTORS = {
    "model": ("mlp", "cnn", "gpt2"),
    "precision": ("fp32", "bf16", "fp16"),
    "ranks": (1, 2, 4),
    "accumulation": (1, 4),
    "optimizer": ("adamw_clipped", "sgd_not_clipped"),
}
PRECISIONS = {
    "fp32": {},
    "bf16": {"bf16": {"enabled": True}},
    "fp16": {"fp16": {"enabled": True, "initial_scale_power": 12, "loss_scale_window": 5}},
}
OPTIMIZERS = {
    "adamw_clipped": {"optimizer": {"type": "AdamW", "params": {"lr": 0.001, "weight_decay": 0.01}},
                      "gradient_clipping": 1.0},
    "sgd_not_clipped": {"optimizer": {"type": "SGD", "params": {"lr": 0.02, "momentum": 0.9}}, "gradient_clipping": 0},
}
# Largest relative deviation of any step. MKL's kernels round differently if data is aligned differently, and the
# engine's weights are in flat buffers: from two runs that differ by 1e-8, Adam and Adagrad make 1e-6 in 20 steps.
# STRICT makes results independent of alignment. oneDNN's convolutions for AVX-512 have the same problem: 5e-6 in 20
# steps of the cnn on 4 ranks.
os.environ["MKL_CBWR"] = "AVX2,STRICT"
os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX2"
LOSS_WITHIN = {"fp32": 1e-6, "bf16": 1e-3, "fp16": 2e-4}
GRAD_NORM_WITHIN = {"fp32": 1e-6, "bf16": 5e-3, "fp16": 1e-3}

GPT2 = {"type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 32, "n_positions": 32, "vocab_size": 256,
        "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
GLOBAL_BATCH = {"mlp": 64, "cnn": 32, "gpt2": 16}  # gives micro-batches of at least one sample in every cell

# Settings that the table does not contain.
SETTINGS = [
    recipe("mlp", ADAM, NO_CLIPPING),
    recipe("mlp", PLAIN_ADAM, NO_CLIPPING),
    recipe("mlp", SGD, {"gradient_clipping": 0.3}),
    recipe("mlp", SGD, dict(NO_CLIPPING, train_batch_size=samples_of("train") * 3 // 10), {"steps": 8, "seed": 3}),  # 2.4 epochs
    recipe("mlp", SGD, NO_CLIPPING, data={"shuffle": False}),
    recipe("mlp", {"type": "Adagrad"}, {"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10}}}),
    recipe("mlp", {"type": "RMSprop", "params": {"lr": 1e-4, "momentum": 0.9}},
           {"scheduler": {"type": "CosineAnnealingWarmRestarts", "params": {"T_0": 5, "T_mult": 2}}}),
    recipe("mlp", {"type": "Lamb", "params": {"weight_decay": 0.01}},
           {"scheduler": {"type": "WarmupCosineLR", "params": {"warmup_num_steps": 5, "total_num_steps": 20}}}),
    recipe("mlp", {"type": "Lion", "params": {"lr": 1e-4, "betas": [0.9, 0.99]}},
           {"scheduler": {"type": "StepLR", "params": {"step_size": 7}}}),
]


def name_of(cell):
    return "{model} {precision} ranks={ranks} accumulation={accumulation} {optimizer}".format(**cell)


def deviation(metrics, steps, key):
    """Returns the largest relative deviation and its step. Skipped steps have no meaningful gradient norm."""
    return max((abs(metric[key] - step[key]) / abs(step[key]), metric["step"])
               for metric, step in zip(metrics, steps, strict=True) if key == "loss" or not step["skipped"])


def traces(steps):
    """Returns the values that must be equal bit for bit, by step."""
    return [{key: step[key] for key in ("lr", "loss_scale", "skipped")} for step in steps]


class InputsCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        write_idx_part(cls.folder, {"train": 2048, "t10k": 64})
        cls.text = os.path.join(cls.folder, "text.txt")
        write_text(cls.text, 256 * GPT2["n_positions"] + 1)
        cls.weights = os.path.join(cls.folder, "gpt2.safetensors")
        torch.manual_seed(3)
        save_file(Gpt2(GPT2).state_dict(), cls.weights)

    def mlp(self, steps=20):
        return recipe("mlp", run={"steps": steps, "seed": 7}, data={"path": self.folder})


class ParityTest(InputsCase):
    def recipe_of(self, cell):
        engine = {"train_batch_size": GLOBAL_BATCH[cell["model"]], "gradient_accumulation_steps": cell["accumulation"],
                  **PRECISIONS[cell["precision"]], **OPTIMIZERS[cell["optimizer"]]}
        if cell["model"] == "gpt2":
            return {"model": GPT2, "data": {"type": "text", "path": self.text, "block_size": GPT2["n_positions"]},
                    "run": {"steps": 20, "seed": 7, "init_weights": self.weights}, "engine": engine}
        return recipe(cell["model"], engine=engine, data={"path": self.folder})

    def check_cells(self, cells):
        """Checks all cells, which have the same number of ranks."""
        recipes = [self.recipe_of(cell) for cell in cells]
        for (steps, _), wanted, cell in zip(oracle.run(recipes, cells[0]["ranks"]), recipes, cells, strict=True):
            with self.subTest(cell=name_of(cell)):
                _, metrics = run_with_metrics(wanted, cell["ranks"])
                loss, at_loss = deviation(metrics, steps, "loss")
                norm, at_norm = deviation(metrics, steps, "grad_norm")
                print("%s: loss within %.1e (step %d), grad_norm within %.1e (step %d)" % (
                    name_of(cell), loss, at_loss, norm, at_norm), flush=True)
                self.assertLess(loss, LOSS_WITHIN[cell["precision"]])
                self.assertLess(norm, GRAD_NORM_WITHIN[cell["precision"]])
                self.assertEqual(traces(metrics), traces(steps))

    def test_oracle_gpt2_matches_hugging_face(self):
        from transformers import GPT2Config, GPT2LMHeadModel  # inside the function, because the import takes seconds
        config = {key: value for key, value in GPT2.items() if key != "type"}
        theirs = GPT2LMHeadModel(GPT2Config(**config, bos_token_id=None, eos_token_id=None))
        ours, tokens = Gpt2(GPT2), torch.arange(64).view(2, 32)
        self.assertEqual([name for name, _ in ours.named_parameters()], [name for name, _ in theirs.named_parameters()])
        for model in (ours, theirs):
            model.load_state_dict(load_file(self.weights), strict=model is ours)  # theirs names the tied head
        mine, expected = ours(tokens), theirs(tokens).logits
        torch.testing.assert_close(mine, expected, rtol=1e-5, atol=1e-6)
        for logits in (mine, expected):
            logits.square().mean().backward()
        for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-7, msg=name)

    def test_table_matches_pytorch(self):
        full = os.environ.get("DSLAUNCH_TEST_FULL") == "1"
        cells = all_cells(FACTORS) if full else pairwise_cells(FACTORS)
        print("%d cells%s" % (len(cells), "" if full else ", every pair; DSLAUNCH_TEST_FULL=1 runs all"), flush=True)
        for ranks in FACTORS["ranks"]:
            self.check_cells([cell for cell in cells if cell["ranks"] == ranks])

    def test_other_settings_match_pytorch(self):
        for (steps, correct), wanted in zip(oracle.run(SETTINGS, 2), SETTINGS, strict=True):
            with self.subTest(recipe=json.dumps(wanted)):
                ranks, metrics = run_with_metrics(wanted, 2)
                for key in ("loss", "grad_norm"):
                    self.assertLess(deviation(metrics, steps, key)[0], 1e-6, key)
                for metric, step in zip(metrics, steps, strict=True):
                    self.assertLess(abs(metric["lr"] - step["lr"]), 1e-9, metric)
                got = int(re.search(r"test accuracy .*\((\d+) of %d\)" % samples_of("t10k"), ranks[0].out)[1])
                # Samples at the decision boundary may be classified differently because of rounding.
                self.assertLessEqual(abs(got - correct), samples_of("t10k") // 1000)

    def test_grouping_of_ranks_does_not_change_losses(self):
        for model in ("mlp", "cnn"):
            wanted = recipe(model, ADAM, run={"steps": 60, "seed": 5})
            _, one_node = run_with_metrics(wanted, 4, local_world=4)
            _, two_nodes = run_with_metrics(wanted, 4, local_world=2)
            for a, b in zip(one_node, two_nodes, strict=True):
                self.assertLess(abs(a["loss"] - b["loss"]) / a["loss"], 1e-5, model)

    def test_prints_progress_and_accuracy(self):
        # Three ranks do not divide the 10000 test samples evenly, but each sample must count once.
        ranks = run(recipe(run={"epochs": 1, "seed": 1, "eval_every": 100},
                           engine={"train_batch_size": 240, "steps_per_print": 100}, data={"path": WHOLE_DATA}), 3)
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
            steps = [line for line in status[1:] if line["event"] == "step"]
            self.assertEqual((steps[-1]["step"], steps[-1]["total_steps"]), (250, 250))
            self.assertTrue(all(line.get("loss", 1) > 0 for line in steps))
            told = [line["step"] for line in status if line["event"] == "eval"]
            self.assertEqual(told, [100, 200, 250] if rank is ranks[0] else [])

# Copied verbatim from DeepSpeed's tutorials.
TUTORIALS = {
    "fp32": '{"train_batch_size":64,"optimizer":{"type":"Adam","params":{"lr":0.001}}}',
    "fp16": '{"train_batch_size":64,"gradient_accumulation_steps":4,"fp16":{"enabled":true,"loss_scale":0,'
            '"loss_scale_window":1000,"hysteresis":2,"min_loss_scale":1}}',
    "bf16": '{"train_batch_size":64,"gradient_accumulation_steps":4,"bf16":{"enabled":true}}',
    "zero": '{"train_batch_size":64,"optimizer":{"type":"Adam","params":{"lr":0.001}},"zero_optimization":{"stage":2}}',
}
# The initial fp16 scale is so high that the first steps overflow. The windows are so short that the scale grows until
# later steps overflow again.
SCALERS = [
    {"initial_scale_power": 24, "loss_scale_window": 3},
    {"initial_scale_power": 22, "loss_scale_window": 2, "hysteresis": 1},
    {"initial_scale_power": 22, "loss_scale_window": 4, "hysteresis": 3, "consecutive_hysteresis": True},
]


class DeepSpeedTest(InputsCase):
    def test_tutorial_configurations_match_pytorch(self):
        recipes = [dict(self.mlp(), engine=json.loads(text)) for text in TUTORIALS.values()]
        for ranks in (1, 2, 4):
            for (name, text), wanted, (steps, _) in zip(TUTORIALS.items(), recipes, oracle.run(recipes, ranks)):
                precision = name if name in LOSS_WITHIN else "fp32"
                with self.subTest(ranks=ranks, config=text):
                    _, metrics = run_with_metrics(wanted, ranks)
                    self.assertLess(deviation(metrics, steps, "loss")[0], LOSS_WITHIN[precision])
                    # ZeRO sums in another order than the oracle, which has an effect in fp32 after 20 steps.
                    within = 2 * GRAD_NORM_WITHIN["fp32"] if name == "zero" else GRAD_NORM_WITHIN[precision]
                    self.assertLess(deviation(metrics, steps, "grad_norm")[0], within)
                    self.assertEqual(traces(metrics), traces(steps))

    def test_loss_scale_follows_deepspeed(self):
        recipes = [self.mlp(steps=60) for _ in SCALERS]
        for wanted, scaler in zip(recipes, SCALERS, strict=True):
            wanted["engine"].update(OPTIMIZERS["adamw_clipped"], train_batch_size=64, gradient_accumulation_steps=2,
                                    fp16={"enabled": True, **scaler})
        for (steps, _), wanted, scaler in zip(oracle.run(recipes, 2), recipes, SCALERS, strict=True):
            with self.subTest(scaler=scaler):
                scales, skipped = [step["loss_scale"] for step in steps], [step["skipped"] for step in steps]
                # The scale must have fallen, or the test would prove nothing.
                self.assertLess(min(scales), scales[0])
                self.assertGreater(max(scales[scales.index(min(scales)):]), min(scales))
                self.assertIn(True, skipped[skipped.index(False):])
                _, metrics = run_with_metrics(wanted, 2)
                self.assertEqual(traces(metrics), traces(steps))
                # With three times the table's steps, the deviation is still within fp16's own rounding, which is 2.5e-4
                # with AVX2's kernels.
                self.assertLess(deviation(metrics, steps, "loss")[0], 2 ** -11)
                self.assertLess(deviation(metrics, steps, "grad_norm")[0], GRAD_NORM_WITHIN["fp16"])


if __name__ == "__main__":
    unittest.main()
