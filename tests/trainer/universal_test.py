"""Tests that DeepSpeed resumes from universal checkpoints that the trainer wrote, and trains as the trainer itself
continues."""

import itertools
import json
import os
import shutil
import subprocess
import tempfile
import unittest

import torch
from safetensors.torch import load_file

from inputs import write_text
from spawn import TRAIN, run_with_metrics

HERE = os.path.dirname(os.path.abspath(__file__))
DEEPSPEED = os.environ.get("DSLAUNCH_DEEPSPEED_PYTHON",
                           os.path.join(HERE, "..", "..", ".deps", "deepspeed", "bin", "python3"))
FULL = os.environ.get("DSLAUNCH_TEST_FULL") == "1"
MODEL = {"type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 24, "n_positions": 16, "vocab_size": 256,
         "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
SAVED, STEPS = 3, 6


class UniversalTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.text = os.path.join(self.folder, "text")
        write_text(self.text, 12 * 16 * (STEPS + 1) + 1)

    def recipe(self, stage, dtype, **run):
        engine = {"train_batch_size": 12, "gradient_clipping": 1.0, "zero_optimization": {"stage": stage},
                  "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "betas": [0.9, 0.95], "weight_decay": 0.1}},
                  "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1e-2, "warmup_num_steps": 10}}}
        if dtype != "fp32":
            engine[dtype] = {"enabled": True}
        return {"model": MODEL, "engine": engine, "run": {"steps": STEPS, "seed": 3, **run},
                "data": {"type": "text", "path": self.text, "block_size": 16, "shuffle": False}}

    def saved(self, name, stage, world, dtype):
        """Trains 6 steps. Returns the folder of the checkpoint after step 3, and the steps' metrics."""
        folder = os.path.join(self.folder, name)
        _, whole = run_with_metrics(self.recipe(stage, dtype, checkpoint_dir=folder, save_every=SAVED), world)
        return os.path.join(folder, f"step_{SAVED:06d}"), whole

    def written(self, checkpoint, name):
        out = os.path.join(self.folder, name)
        run = self.tool("convert", checkpoint, out, "--to", "deepspeed-universal")
        self.assertEqual(run.returncode, 0, run.stderr)
        return out

    @staticmethod
    def tool(*words):
        return subprocess.run([TRAIN, "checkpoint", *words], stdin=subprocess.DEVNULL, timeout=120, capture_output=True,
                              text=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})

    def resumed(self, cases):
        run = subprocess.run([DEEPSPEED, os.path.join(HERE, "foreign", "resume_deepspeed.py")], timeout=500, text=True, cwd=HERE,
                             input="".join(json.dumps(case) + "\n" for case in cases), capture_output=True)
        self.assertEqual(run.returncode, 0, run.stderr[-6000:])
        return [json.loads(line) for line in run.stdout.splitlines()]

    @unittest.skipUnless(os.path.exists(DEEPSPEED), f"{DEEPSPEED} does not exist; packaging/fetch-deepspeed makes it")
    def test_deepspeed_continues_as_the_trainer(self):
        ours = [(2, 2, "fp32"), (1, 2, "bf16"), (3, 2, "fp32")]
        theirs = [(1, 1), (2, 2), (3, 2), (1, 3)]
        pairs = [(ours[i % len(ours)], theirs[i]) for i in range(len(theirs))]  # each item of both lists occurs
        if FULL:
            pairs = list(itertools.product([*ours, (0, 1, "fp32"), (3, 4, "bf16")], [*theirs, (3, 1), (2, 4)]))
        universal, cases, wanted = {}, [], []
        for (stage, world, dtype), (their_stage, their_world) in pairs:
            key = f"{stage}-{world}-{dtype}"
            if key not in universal:
                checkpoint, whole = self.saved(key, stage, world, dtype)
                universal[key] = self.written(checkpoint, key + "-universal"), whole
            folder, whole = universal[key]
            cases.append({"folder": folder, "world": their_world, "stage": their_stage, "text": self.text, "from": SAVED,
                          "to": STEPS, "recipe": self.recipe(their_stage, dtype)})
            wanted.append((dtype, whole[SAVED:]))
        for case, (dtype, steps), found in zip(cases, wanted, self.resumed(cases)):
            with self.subTest(ours=case["folder"], stage=case["stage"], world=case["world"]):
                self.assertEqual(found["steps"], SAVED)
                for number, (step, loss, rate) in enumerate(zip(steps, found["losses"], found["rates"])):
                    bound = 2e-2 if dtype == "bf16" else 1e-6 if number == 0 else 1e-5
                    self.assertLessEqual(abs(loss - step["loss"]), bound * step["loss"], (number, loss, step))
                    self.assertAlmostEqual(rate, step["lr"], delta=1e-9)

    def test_files_have_the_checkpoints_tensors(self):
        checkpoint, _ = self.saved("saved", 2, 2, "bf16")
        universal = self.written(checkpoint, "universal")
        folder = os.path.join(universal, f"global_step{SAVED}")
        with open(os.path.join(checkpoint, "manifest.json")) as file:
            manifest = json.load(file)
        files = {entry["name"]: load_file(os.path.join(checkpoint, entry["name"])) for entry in manifest["files"]}
        compared = 0
        for tensor in manifest["tensors"]:
            words = tensor["name"].split("/")
            if words[0] == "generator":
                continue
            kind, name = ("fp32", words[0]) if len(words) == 1 else words[1:]
            whole = torch.cat([files[part["file"]][tensor["name"]].flatten() for part in tensor["slices"]])
            found = torch.load(os.path.join(folder, "zero", name, kind + ".pt"), weights_only=True)["param"]
            self.assertEqual(list(found.shape), tensor["shape"])
            self.assertTrue(torch.equal(found, whole.float().view(found.shape)), tensor["name"])
            compared += 1
        self.assertEqual(compared, 3 * len(os.listdir(os.path.join(folder, "zero"))) - 3)  # and optimizer_state.pt
        model = torch.load(os.path.join(folder, "mp_rank_00_model_states.pt"), weights_only=True)
        self.assertEqual((model["global_steps"], model["skipped_steps"], model["module"]), (SAVED, 0, {}))
        diff = self.tool("diff", checkpoint, universal)
        self.assertEqual((diff.returncode, diff.stdout), (0, f"equal: {compared} tensors\n"), diff.stderr)

    def test_refuses_names_that_cannot_be_folders(self):
        source, out = os.path.join(self.folder, "weights.pt"), os.path.join(self.folder, "out")
        for name in ("../x", "a/b", "..", "x" * 256):
            with self.subTest(name=name):
                torch.save({name: torch.ones(2)}, source)
                run = self.tool("convert", source, out, "--to", "deepspeed-universal")
                self.assertEqual(run.returncode, 65, run.stderr)
                self.assertIn("cannot be a folder", run.stderr)
                self.assertEqual(sorted(os.listdir(self.folder)), ["text", "weights.pt"])


if __name__ == "__main__":
    unittest.main()
