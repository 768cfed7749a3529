"""Tests that ZeRO computes the same as stage 0: equal losses and gradient norms on the same ranks."""

import os
import shutil
import tempfile
import unittest

import torch
from safetensors.torch import save_file

from gpt2 import Gpt2
from inputs import write_text
from parity_test import (GPT2, GRAD_NORM_WITHIN, LOSS_WITHIN, OPTIMIZERS, PRECISIONS, deviation, traces)
from spawn import Job, run_with_metrics
from table import all_cells, pairwise_cells

FACTORS = {
    "stage": (1, 2, 3),
    "precision": ("fp32", "bf16", "fp16"),
    "ranks": (2, 4),
    "accumulation": (1, 2),
    "optimizer": ("adamw_clipped", "sgd_not_clipped"),
}
BAD_INPUT = 65
# Makes many buckets, and parameters that are gathered and freed at stage 3.
SMALL = {"reduce_bucket_size": 8000, "stage3_param_persistence_threshold": 100, "stage3_prefetch_bucket_size": 10000,
         "stage3_max_live_parameters": 20000, "stage3_max_reuse_distance": 5000}


class ZeroCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.text = os.path.join(cls.folder, "text.txt")
        write_text(cls.text, 256 * GPT2["n_positions"] + 1)
        cls.weights = os.path.join(cls.folder, "gpt2.safetensors")
        torch.manual_seed(3)
        save_file(Gpt2(GPT2).state_dict(), cls.weights)
        cls.stage0 = {}

    def recipe(self, engine, **run):
        return {"model": GPT2, "data": {"type": "text", "path": self.text, "block_size": GPT2["n_positions"]},
                "run": {"steps": 20, "seed": 7, "init_weights": self.weights, **run},
                "engine": {"train_batch_size": 16, **engine}}

    def metrics(self, engine, ranks, zero, **run):
        return run_with_metrics(self.recipe({**engine, "zero_optimization": zero}, **run), ranks)[1]

    def in_files(self):
        return {"device": "nvme", "nvme_path": self.folder}

    def reference(self, engine, ranks):
        key = (str(engine), ranks)
        if key not in self.stage0:
            self.stage0[key] = self.metrics(engine, ranks, {"stage": 0})
        return self.stage0[key]


class ParityTest(ZeroCase):
    def test_table_matches_stage_0(self):
        full = os.environ.get("DSLAUNCH_TEST_FULL") == "1"
        cells = all_cells(FACTORS) if full else pairwise_cells(FACTORS)
        print("%d cells%s" % (len(cells), "" if full else ", every pair; DSLAUNCH_TEST_FULL=1 runs all"), flush=True)
        for cell in cells:
            with self.subTest(cell=cell):
                engine = {"gradient_accumulation_steps": cell["accumulation"], **PRECISIONS[cell["precision"]],
                          **OPTIMIZERS[cell["optimizer"]]}
                steps = self.reference(engine, cell["ranks"])
                metrics = self.metrics(engine, cell["ranks"], {"stage": cell["stage"], **SMALL})
                loss, at_loss = deviation(metrics, steps, "loss")
                norm, at_norm = deviation(metrics, steps, "grad_norm")
                print("%s: loss within %.1e (step %d), grad_norm within %.1e (step %d)" % (
                    " ".join(map(str, cell.values())), loss, at_loss, norm, at_norm), flush=True)
                self.assertLess(loss, LOSS_WITHIN[cell["precision"]])
                self.assertLess(norm, GRAD_NORM_WITHIN[cell["precision"]])
                self.assertEqual(traces(metrics), traces(steps))

    def test_overlap_does_not_change_results(self):
        for stage in (1, 2, 3):
            with self.subTest(stage=stage):
                a, b = (self.metrics({"gradient_accumulation_steps": 2}, 4, {"stage": stage, "overlap_comm": on, **SMALL})
                        for on in (True, False))
                for key in ("loss", "grad_norm"):
                    self.assertEqual([step[key] for step in a], [step[key] for step in b])

    def test_initial_weights_match_stage_0_on_any_ranks(self):
        for precision in ("fp32", "bf16"):
            losses = []
            for ranks, stage in ((1, 0), (1, 3), (2, 3), (4, 3)):
                metrics = self.metrics(PRECISIONS[precision], ranks, {"stage": stage, **SMALL}, init_weights="", steps=2)
                losses.append(metrics[0]["loss"])
            for loss in losses[1:]:
                self.assertLess(abs(loss - losses[0]) / losses[0], 1e-6 if precision == "fp32" else 1e-4, losses)

    def test_every_optimizer_matches_stage_0(self):
        for kind, params in (("Lamb", {"weight_decay": 0.01}), ("Lion", {"lr": 1e-4}), ("Adagrad", {}),
                             ("RMSprop", {"lr": 1e-4, "momentum": 0.9}), ("Adam", {"adam_w_mode": False})):
            for stage in (1, 3):
                with self.subTest(optimizer=kind, stage=stage):
                    engine = {"optimizer": {"type": kind, "params": params}}
                    steps, metrics = self.reference(engine, 4), self.metrics(engine, 4, {"stage": stage, **SMALL})
                    self.assertLess(deviation(metrics, steps, "loss")[0], 1e-6)
                    self.assertLess(deviation(metrics, steps, "grad_norm")[0], 1e-6)

    def test_other_settings_match_stage_0(self):
        groups = {"optimizer": {"type": "AdamW", "params": {"lr": 0.001}, "param_groups": [
            {"max_dims": 1, "weight_decay": 0.0}, {"names": ["*wte*"], "lr": 0.0001}]}}
        for engine, zero in (({}, {"stage": 2, "reduce_scatter": False}),
                             ({"prescale_gradients": True}, {"stage": 1}),
                             ({"gradient_predivide_factor": 2.0}, {"stage": 2, "contiguous_gradients": False}),
                             ({"gradient_allreduce_op": "sum"}, {"stage": 2}),
                             (groups, {"stage": 3}),
                             ({}, {"stage": 2, "offload_optimizer": {"device": "cpu"}}),
                             ({}, {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}}),
                             ({"aio": {"thread_count": 2}}, {"stage": 2, "offload_optimizer": self.in_files()})):
            with self.subTest(engine=engine, zero=zero):
                steps, metrics = self.reference(engine, 2), self.metrics(engine, 2, {**SMALL, **zero})
                self.assertLess(deviation(metrics, steps, "loss")[0], 1e-6)
                self.assertLess(deviation(metrics, steps, "grad_norm")[0], 1e-6)

    def test_states_in_files_do_not_change_results(self):
        for stage, precision in ((1, "bf16"), (3, "fp32")):
            with self.subTest(stage=stage):
                files = {"offload_optimizer": self.in_files(), **({"offload_param": self.in_files()} if stage == 3 else {})}
                engine, memory, disk = PRECISIONS[precision], {"stage": stage, **SMALL}, {"stage": stage, **SMALL, **files}
                checkpoints = os.path.join(self.folder, f"checkpoints_{stage}")
                whole = self.metrics(engine, 2, memory)
                first = self.metrics(engine, 2, disk, steps=10, checkpoint_dir=checkpoints)
                rest = self.metrics(engine, 2, disk, checkpoint_dir=checkpoints)
                for key in ("loss", "grad_norm"):
                    self.assertEqual([step[key] for step in whole], [step[key] for step in first + rest])
        self.assertEqual([], [name for name in os.listdir(self.folder) if name.startswith("dslaunch")])

    def test_reports_folder_that_accepts_no_files(self):
        disk = {"stage": 1, "offload_optimizer": {"device": "nvme", "nvme_path": "/nowhere/nvme"}}
        with Job(self.recipe({"zero_optimization": disk}), 2) as job:
            for rank in job.finish():
                self.assertEqual(BAD_INPUT, rank.code, rank.err)
                self.assertIn("nvme_path /nowhere/nvme: takes no files: No such file or directory", rank.err)


if __name__ == "__main__":
    unittest.main()
