"""Tests that a GPU computes the same as the CPU.
Compares every loss and gradient norm of models x optimizers x precisions x ZeRO stages x ranks. Runs cells that cover
every pair of values by default, and every cell with DSLAUNCH_TEST_FULL=1. Skipped without a GPU.

On the stand-in (tests/support/standin_gpu), a cell ends at a race, a read of memory in use, or different collectives
on ranks. A hidden wait for the device in a step that must not wait also ends it. The requests of a step to the
device are printed."""

import json
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "trainer"))
from gpu_case import SKIPPED, gpus, is_standin, why_not  # noqa: E402
from inputs import write_idx_part, write_text  # noqa: E402
from spawn import recipe, run_with_metrics  # noqa: E402
from table import all_cells, pairwise_cells  # noqa: E402

STEPS = 6
STEADY = range(3, 6)  # earlier steps include setup, and the last one reads its losses
DELAY_SEED, DELAY_US = 20261124, 300
FACTORS = {
    "model": ("mlp", "cnn", "gpt2", "qwen3"),
    "optimizer": ("SGD", "AdamW", "Lamb"),
    "precision": ("fp32", "bf16", "fp16"),
    "zero": (0, 1, 2, 3),
    "ranks": (1, 2),
}
OPTIMIZERS = {
    "SGD": {"type": "SGD", "params": {"lr": 0.02, "momentum": 0.9}},
    "AdamW": {"type": "AdamW", "params": {"lr": 0.001, "weight_decay": 0.01}},
    "Lamb": {"type": "Lamb", "params": {"lr": 0.002, "weight_decay": 0.01}},
}
PRECISIONS = {
    "fp32": {},
    "bf16": {"bf16": {"enabled": True}},
    "fp16": {"fp16": {"enabled": True, "initial_scale_power": 10}},
}
GPT2 = {"type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 32, "n_positions": 32, "vocab_size": 256,
        "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
QWEN3 = {"type": "decoder", "model_type": "qwen3", "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "hidden_size": 32, "head_dim": 8, "intermediate_size": 48, "max_position_embeddings": 32, "vocab_size": 256}
LANGUAGE_MODELS = {"gpt2": GPT2, "qwen3": QWEN3}
RELEASED = {"stage3_param_persistence_threshold": 0}
WITHIN = {"fp32": 1e-4, "bf16": 2e-3, "fp16": 2e-3}  # largest relative deviation
WITHIN_CUDNN = 1e-2  # gradient norms: cuDNN's convolutions in 16 bits sum in another order (0.7 % on an H200)


def name_of(cell):
    return "{model} {optimizer} {precision} zero={zero} ranks={ranks}".format(**cell)


def never_waits(cell):
    """Returns whether no step may wait for the device.
    A loss scale depends on the gradients. So does skipping a step after an overflow, which only Adam does on the
    device. Lamb computes its norms on the host."""
    return cell["optimizer"] == "AdamW" and cell["precision"] != "fp16" or (
        cell["optimizer"] == "SGD" and cell["precision"] == "fp32")


def deviation(ours, theirs, key):
    return max(abs(a[key] - b[key]) / max(abs(b[key]), 1e-12) for a, b in zip(ours, theirs, strict=True))


def per_step(counts):
    """Returns name -> number (and bytes) for the steady steps of one rank, which must be equal."""
    total = {}
    for step in counts:
        for kind in ("waits", "copies", "collectives"):
            for name, value in step[kind].items():
                number, size = value if isinstance(value, list) else (value, 0)
                old = total.get(name, (0, 0))
                total[name] = (old[0] + number / len(counts), old[1] + size / len(counts))
    return total


def as_text(total):
    return ", ".join("%g %s%s" % (number, name.replace("standin:", ""), " of %d bytes" % size if size else "")
                     for name, (number, size) in sorted(total.items())) or "nothing"


class ParityMatrix(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        write_idx_part(cls.folder, {"train": 512, "t10k": 64})
        cls.text = os.path.join(cls.folder, "text.txt")
        write_text(cls.text, 20000)

    def recipe_of(self, cell, device):
        wanted = recipe(cell["model"], OPTIMIZERS[cell["optimizer"]], {
            "train_batch_size": 16, "gradient_clipping": 1.0,
            "zero_optimization": {"stage": cell["zero"], **(RELEASED if cell["zero"] == 3 else {})},
            **PRECISIONS[cell["precision"]]}, {"steps": STEPS, "seed": 7, "device": device}, {"path": self.folder})
        if cell["model"] in LANGUAGE_MODELS:
            wanted = dict(wanted, model=LANGUAGE_MODELS[cell["model"]], data={"type": "text", "path": self.text})
        return wanted

    def run_cell(self, cell, device, **environment):
        os.environ.update(environment)
        try:
            return run_with_metrics(self.recipe_of(cell, device), cell["ranks"])[1]
        finally:
            for name in environment:
                del os.environ[name]

    def check(self, cell, **environment):
        counts = os.path.join(self.folder, "counts")
        if never_waits(cell):
            environment["STANDIN_NO_SYNC"] = "%d-%d" % (STEADY.start, STEADY.stop - 1)
        ours = self.run_cell(cell, "cuda", STANDIN_COUNTS=counts, **environment)
        theirs = self.run_cell(cell, "cpu")
        found = {key: deviation(ours, theirs, key) for key in ("loss", "grad_norm")}
        text = "%-32s loss within %.0e, grad_norm within %.0e" % (name_of(cell), found["loss"], found["grad_norm"])
        if is_standin():
            with open(counts + ".0") as lines:
                steps = [json.loads(line) for line in lines]
            for rank in range(cell["ranks"]):
                os.unlink("%s.%d" % (counts, rank))
            self.assertGreater(len(steps), STEPS)  # includes the setup and the evaluation
            text += "; a step: " + as_text(per_step([steps[i] for i in STEADY]))
        print(text, flush=True)
        for key, value in found.items():
            by_cudnn = key == "grad_norm" and cell["model"] == "cnn" and cell["precision"] != "fp32" and not is_standin()
            within = WITHIN_CUDNN if by_cudnn else WITHIN[cell["precision"]]
            self.assertLessEqual(value, within, (name_of(cell), key, ours, theirs))
        return ours

    def test_matrix_matches_cpu(self):
        full = os.environ.get("DSLAUNCH_TEST_FULL") == "1"
        factors = {**FACTORS, "ranks": [ranks for ranks in FACTORS["ranks"] if ranks <= gpus()]}
        cells = all_cells(factors) if full else pairwise_cells(factors)
        print("%d cells%s" % (len(cells), "" if full else ", every pair; DSLAUNCH_TEST_FULL=1 runs all"), flush=True)
        for cell in cells:
            with self.subTest(name_of(cell)):
                self.check(cell)

    def test_delayed_streams_give_same_results(self):
        if not is_standin():
            self.skipTest("a GPU has the delays it has")
        if gpus() < 2:
            self.skipTest("takes two GPUs")
        print("delays of up to %d us, seed %d" % (DELAY_US, DELAY_SEED), flush=True)
        for zero in (0, 2):
            cell = {"model": "gpt2", "optimizer": "AdamW", "precision": "bf16", "zero": zero, "ranks": 2}
            with self.subTest(name_of(cell)):
                plain = self.check(cell)
                late = self.check(cell, STANDIN_DELAY_US=str(DELAY_US), STANDIN_DELAY_SEED=str(DELAY_SEED))
                for key in ("loss", "grad_norm"):
                    self.assertEqual([step[key] for step in late], [step[key] for step in plain])


if __name__ == "__main__":
    if why_not():
        print("SKIPPED: " + why_not())
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
