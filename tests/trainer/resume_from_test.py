"""Tests `dslaunch train --resume_from`. DeepSpeed trains GPT-2 and saves; dslaunch-train continues on other ranks
and stages, with the same next steps as DeepSpeed's own."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import torch
from safetensors.torch import load_file, save_file
from torch.distributed import checkpoint
from torch.distributed.checkpoint.state_dict import get_state_dict

import oracle
from gpt2 import Gpt2
from inputs import write_text
from spawn import assert_refused, run, run_with_metrics
from table import all_cells, pairwise_cells

HERE = pathlib.Path(__file__).resolve().parent
DEEPSPEED = pathlib.Path(os.environ.get("DSLAUNCH_DEEPSPEED_PYTHON",
                                        HERE.parents[1] / ".deps" / "deepspeed" / "bin" / "python3"))
FULL = os.environ.get("DSLAUNCH_TEST_FULL") == "1"
# Makes results independent of how data is aligned.
os.environ["MKL_CBWR"] = "AVX2,STRICT"

SAVED, STEPS, BATCH = 3, 6, 16
GPT2 = {"type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 32, "n_positions": 32, "vocab_size": 256,
        "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
SAMPLES = 80  # few enough that the run enters its second epoch after it was resumed

FACTORS = {
    "saved": (1, 2, 4),           # number of DeepSpeed's ranks
    "stage": (0, 1, 2, 3),        # DeepSpeed's ZeRO stage
    "precision": ("fp32", "fp16"),
    "ranks": (1, 2, 4),           # number of dslaunch's ranks
    "ours": (0, 1, 2, 3, "pipeline"),
}
PRECISIONS = {
    "fp32": {},
    "bf16": {"bf16": {"enabled": True}},
    "fp16": {"fp16": {"enabled": True, "initial_scale_power": 12, "loss_scale_window": 2}},
}
FIRST_LOSS_WITHIN = {"fp32": 1e-6, "bf16": 1e-3, "fp16": 2e-4}
LOSS_WITHIN = {"fp32": 2e-6, "bf16": 1e-3, "fp16": 2e-4}
ADAMW = {"lr": 1e-3, "betas": [0.9, 0.98], "eps": 1e-8, "weight_decay": 0.01}
SCHEDULER = {"type": "WarmupDecayLR",
             "params": {"total_num_steps": 10, "warmup_num_steps": 4, "warmup_max_lr": 1e-3, "warmup_type": "linear"}}
SMALL = {"reduce_bucket_size": 3000}


def continues_alike(cell):
    """Returns whether DeepSpeed's next steps should equal dslaunch's. DeepSpeed's stage 0 in fp16
    (FP16_UnfusedOptimizer) makes other steps from the same weights than its ZeRO stages. dslaunch follows these stages,
    so only the first loss is compared."""
    return (cell["stage"], cell["precision"]) != (0, "fp16")


def deepspeed_engine(cell):
    return {"train_batch_size": BATCH, "gradient_accumulation_steps": 2, "gradient_clipping": 1.0,
            "optimizer": {"type": "AdamW", "params": {**ADAMW, "torch_adam": True}}, "scheduler": SCHEDULER,
            "zero_optimization": {"stage": cell["stage"]}, "zero_force_ds_cpu_optimizer": False,
            "zero_allow_untested_optimizer": True, "steps_per_print": 10**9, **PRECISIONS[cell["precision"]]}


def name_of(cell):
    return "{saved} ranks at stage {stage} in {precision}, resumed by {ranks} at {ours}".format(**cell)


@unittest.skipUnless(DEEPSPEED.exists(), f"{DEEPSPEED} does not exist; packaging/fetch-deepspeed makes it")
class ResumeFromTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.root)
        cls.text = os.path.join(cls.root, "text.txt")
        write_text(cls.text, SAMPLES * GPT2["n_positions"] + 1)
        cls.weights = os.path.join(cls.root, "gpt2.safetensors")
        torch.manual_seed(3)
        save_file(Gpt2(GPT2).state_dict(), cls.weights)
        cls.folders = {}
        cls.cells = [cell for cell in (all_cells if FULL else pairwise_cells)(FACTORS)
                     if cell["ours"] != "pipeline" or cell["ranks"] > 1]
        cls.train_deepspeed([cls.CELL, *cls.cells])

    @classmethod
    def recipe(cls, engine, **keys):
        return {"model": GPT2, "data": {"type": "text", "path": cls.text, "block_size": GPT2["n_positions"]},
                "run": {"steps": STEPS, "seed": 7, **keys}, "engine": engine}

    @classmethod
    def train_deepspeed(cls, cells):
        """Makes DeepSpeed train once for each way in which `cells` were saved."""
        cases = {}
        for cell in cells:
            key = cell["saved"], cell["stage"], cell["precision"]
            folder = os.path.join(cls.root, "-".join(map(str, key)))
            if key in cls.folders:
                continue
            cls.folders[key] = folder
            cases[key] = {"folder": folder, "world": cell["saved"], "recipe": cls.recipe({}, init_weights=cls.weights),
                          "save_after": SAVED, "engine": deepspeed_engine(cell)}
            os.mkdir(folder)
        cls.run_deepspeed(cases.values())

    @staticmethod
    def run_deepspeed(cases):
        done = subprocess.run([DEEPSPEED, HERE / "foreign" / "train_deepspeed.py"], text=True, capture_output=True, timeout=600,
                              input="".join(json.dumps(case) + "\n" for case in cases))
        assert done.returncode == 0, done.stderr

    def engine_of(self, cell):
        zero = 0 if cell["ours"] == "pipeline" else cell["ours"]
        engine = {"train_batch_size": BATCH, "gradient_accumulation_steps": 2,
                  "gradient_clipping": 1.0, "optimizer": {"type": "AdamW", "params": ADAMW}, "scheduler": SCHEDULER,
                  "zero_optimization": {"stage": zero, **SMALL}, **PRECISIONS[cell["precision"]]}
        if cell["ours"] == "pipeline":
            engine["pipeline"] = {"stages": 2, "schedule": "1f1b", "activation_checkpoint_interval": 0}
        return engine

    def theirs(self, cell):
        return self.folders[cell["saved"], cell["stage"], cell["precision"]]

    def test_continues_with_deepspeeds_next_steps(self):
        print("%d cells%s" % (len(self.cells), "" if FULL else ", every pair; DSLAUNCH_TEST_FULL=1 runs all"), flush=True)
        for cell in self.cells:
            with self.subTest(cell=name_of(cell)):
                folder = self.theirs(cell)
                with open(os.path.join(folder, "steps.json")) as file:
                    wanted = json.load(file)[SAVED:]
                ranks, steps = run_with_metrics(self.recipe(self.engine_of(cell), resume_from=folder), cell["ranks"])
                self.assertEqual([step["step"] for step in steps], [4, 5, 6])
                deviations = [abs(a["loss"] - b["loss"]) / b["loss"] for a, b in zip(steps, wanted, strict=True)]
                print("%s: losses within %s" % (name_of(cell), ", ".join("%.1e" % d for d in deviations)), flush=True)
                self.assertLess(deviations[0], FIRST_LOSS_WITHIN[cell["precision"]])
                compared = len(steps) if continues_alike(cell) else 1
                self.assertLess(max(deviations[:compared]), LOSS_WITHIN[cell["precision"]])
                for a, b in zip(steps[:compared], wanted):
                    self.assertAlmostEqual(a["lr"], b["lr"], delta=1e-9)
                    self.assertEqual((a["skipped"], a["loss_scale"]), (b["skipped"], b["loss_scale"]))
                self.assertRegex(ranks[0].out, r"(?m)^resuming after step 3 from %s/global_step3 \(DeepSpeed 0\.19\.8" % folder)
                self.assertIn("the data continues after 48 samples of epoch 1", ranks[0].out)

    # The tests below use one checkpoint of DeepSpeed: of two ranks at stage 2 in fp32.
    CELL = {"saved": 2, "stage": 2, "precision": "fp32", "ranks": 2, "ours": 1}

    def resumed(self, world=2, engine=(), model=(), **keys):
        """Runs from CELL's folder, or from the given `resume_from`."""
        keys.setdefault("resume_from", self.theirs(self.CELL))
        recipe = self.recipe({**self.engine_of(self.CELL), **dict(engine)}, **keys)
        recipe["model"] = {**GPT2, **dict(model)}
        return run(recipe, world)

    def refused(self, *parts, **keys):
        """Checks that every rank exits with 65 and prints one line that contains `parts`."""
        assert_refused(self, self.resumed(**keys), 65, *parts)

    def copied(self, name):
        folder = os.path.join(self.root, name)
        return shutil.copytree(self.theirs(self.CELL), folder)

    def test_continues_from_pytorchs_distributed_checkpoint(self):
        folder = os.path.join(self.root, "dcp")
        model = Gpt2(GPT2)
        model.load_state_dict(load_file(self.weights))
        optimizer = torch.optim.AdamW(model.parameters(), **ADAMW)
        inputs, targets = oracle.read_text(self.text, GPT2["n_positions"]).tensors

        def train(steps):
            losses = []
            for x, y in list(zip(inputs.split(BATCH), targets.split(BATCH)))[:steps]:
                loss = torch.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                losses.append(loss.item())
            return losses

        train(SAVED)
        weights, state = get_state_dict(model, optimizer)
        checkpoint.save({"model": weights, "optim": state}, checkpoint_id=folder, no_dist=True)
        wanted = train(STEPS - SAVED)
        engine = self.engine_of(self.CELL)
        del engine["scheduler"]
        resumed = self.recipe(engine, resume_from=folder)
        resumed["data"]["shuffle"] = False
        ranks, steps = run_with_metrics(resumed, 2)
        self.assertRegex(ranks[0].out, r"(?m)^resuming after step 3 from %s \(PyTorch distributed checkpoint\): .*; the data "
                         "starts over, because it does not say its batch size" % folder)
        for a, loss in zip(steps, wanted, strict=True):
            self.assertLess(abs(a["loss"] - loss) / loss, LOSS_WITHIN["fp32"])

    @unittest.skipUnless(FULL, "takes 20 s of a core")
    def test_continues_from_folder_of_transformers_trainer(self):
        folder = os.path.join(self.root, "trainer")
        os.mkdir(folder)
        recipe = self.recipe({}, init_weights=self.weights)
        # Trainer requires that the schedule ends with the run.
        scheduler = {**SCHEDULER, "params": {**SCHEDULER["params"], "total_num_steps": STEPS}}
        self.run_deepspeed([{"folder": folder, "world": 2, "recipe": recipe, "save_after": SAVED, "trainer": True,
                             "engine": {**deepspeed_engine(self.CELL), "scheduler": scheduler}}])
        with open(os.path.join(folder, "steps.json")) as file:
            wanted = json.load(file)[SAVED:]
        resumed = self.recipe({**self.engine_of(self.CELL), "scheduler": scheduler},
                              resume_from=os.path.join(folder, "checkpoint-3"))
        resumed["data"]["shuffle"] = False
        ranks, steps = run_with_metrics(resumed, 4)
        self.assertIn("checkpoint-3/global_step3 (DeepSpeed", ranks[0].out)
        for a, b in zip(steps, wanted, strict=True):
            self.assertLess(abs(a["loss"] - b["loss"]) / b["loss"], LOSS_WITHIN["fp32"])

    def test_refuses_another_model(self):
        self.refused("global_step3: lacks 12 tensors of the model (transformer.h.2.attn.c_attn.bias, ",
                     "and 7 more); it is of another model", model={"n_layer": 3})
        self.refused("has 12 tensors that the model lacks (transformer.h.1.", "it is of another model",
                     model={"n_layer": 1})
        self.refused("tensor transformer.wte.weight is F32 [256, 32], not F32 [300, 32]", model={"vocab_size": 300})

    def test_other_optimizer_takes_only_weights(self):
        sgd = {"optimizer": {"type": "SGD", "params": {"lr": 0.01}}}
        self.refused("was saved with the optimizer AdamW, this run has SGD", "--load_module_only", engine=sgd)
        ranks = self.resumed(engine=sgd, load_module_only=True)
        self.assertEqual([rank.code for rank in ranks], [0, 0], ranks[0].err)
        self.assertRegex(ranks[0].out, r"(?m)^starting at step 1 with the weights of .*/global_step3 \(DeepSpeed")

    def test_refuses_incomplete_folders(self):
        folder = self.copied("missing")
        name = "zero_pp_rank_1_mp_rank_00_optim_states.pt"
        os.remove(os.path.join(folder, "global_step3", name))
        self.refused("is incomplete", name, resume_from=folder)
        folder = self.copied("writing")
        file = os.path.join(folder, "global_step3", name)
        os.truncate(file, os.path.getsize(file) // 2)
        self.refused(name, resume_from=folder)

    def test_refuses_other_folders(self):
        self.refused("/nowhere: there is no such file or folder", resume_from="/nowhere")
        empty = os.path.join(self.root, "empty")
        os.mkdir(empty)
        self.refused("empty is not a checkpoint that dslaunch knows", resume_from=empty)
        self.refused("run.resume_from and run.resume (\"step_000003\") both say where the run starts",
                     resume="step_000003", checkpoint_dir=empty)

    def test_weights_without_optimizer_start_at_step_1(self):
        ranks = self.resumed(resume_from=self.weights)
        self.assertEqual([rank.code for rank in ranks], [0, 0], ranks[0].err)
        self.assertIn("starting at step 1 with the weights of %s" % self.weights, ranks[0].out)
        self.assertIn(", which has no optimizer state", ranks[0].out)

    def test_restarted_run_continues_from_newer_checkpoint(self):
        folder, own = self.copied("moved"), os.path.join(self.root, "own")
        ranks = self.resumed(resume_from=folder, checkpoint_dir=own, steps=5)
        self.assertEqual([rank.code for rank in ranks], [0, 0], ranks[0].err)
        self.assertRegex(ranks[0].out, r"(?m)^resuming after step 3 from .*; no checkpoint of this run in %s yet$" % own)
        shutil.rmtree(folder)
        ranks, steps = run_with_metrics(
            self.recipe(self.engine_of(self.CELL), resume_from=folder, checkpoint_dir=own), 2)
        self.assertRegex(ranks[0].out, r"(?m)^resuming from %s/step_000005; this command started the run" % own)
        with open(os.path.join(self.theirs(self.CELL), "steps.json")) as file:
            wanted = json.load(file)[5]
        self.assertEqual([step["step"] for step in steps], [6])
        self.assertLess(abs(steps[0]["loss"] - wanted["loss"]) / wanted["loss"], LOSS_WITHIN["fp32"])
        # Another run starts from the resumed run's checkpoints.
        for source, step in ((own, 6), (os.path.join(own, "step_000005"), 5)):
            ranks = self.resumed(world=1, resume_from=source, steps=7)
            self.assertEqual(ranks[0].code, 0, ranks[0].err)
            self.assertRegex(ranks[0].out, r"(?m)^resuming after step %d from %s.*\(dslaunch, ZeRO 1, 2 ranks\): weights, "
                             r"state of AdamW after %d updates, .*; the data continues after " % (step, own, step))

    def test_data_starts_over_with_another_batch_size(self):
        ranks, steps = run_with_metrics(
            self.recipe({**self.engine_of(self.CELL), "train_batch_size": 8}, resume_from=self.theirs(self.CELL)), 2)
        self.assertIn("; the data starts over, because its batch size is 16, this run's is 8", ranks[0].out)
        self.assertEqual([(step["step"], step["epoch"]) for step in steps], [(4, 1), (5, 1), (6, 1)])


if __name__ == "__main__":
    unittest.main()
