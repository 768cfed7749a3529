"""Tests `dslaunch-train checkpoint` convert, diff, ls and verify on checkpoints of other programs. Other tests
compare each layout with the programs themselves; here a folder of ZeRO stage 3 stands for all layouts."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import torch
import transformers
from safetensors.torch import load_file, save_file

from spawn import TRAIN, recipe, run, start_once

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "foreign"))
from zero_folder import write_zero3  # noqa: E402

BAD_INPUT, USAGE, IO, DIFFERENT = 65, 64, 74, 1
FAULTS = os.environ["DSLAUNCH_FILE_FAULTS"]
RANKS = 3
LONG_AGO = 1_000_000_000

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


class ConvertTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """Makes a folder as Trainer saves it with DeepSpeed: files of the model, and in it a folder of ZeRO."""
        cls.made = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.made)
        torch.manual_seed(3)
        cls.model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=256, n_positions=16, n_embd=24, n_layer=2, n_head=2))
        cls.weights = {name: p.detach().clone() for name, p in cls.model.named_parameters()}
        cls.model.config.save_pretrained(cls.made)
        cls.model.generation_config.save_pretrained(cls.made)
        with open(os.path.join(cls.made, "tokenizer.json"), "w") as file:
            file.write("{}")
        cls.files = write_zero3(cls.made, cls.weights, RANKS, shared={"lm_head.weight": "transformer.wte.weight"})
        for folder, _, names in os.walk(cls.made):
            for name in names:
                os.utime(os.path.join(folder, name), (LONG_AGO, LONG_AGO))

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.source = os.path.join(self.folder, "checkpoint-5")
        shutil.copytree(self.made, self.source)
        self.inner = os.path.join(self.source, "global_step5")

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def rank_file(self, rank):
        return os.path.join(self.inner, f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")

    def tool(self, *words, code=0):
        done = start_once.run([TRAIN, "checkpoint", *words])
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        if code in (0, DIFFERENT):
            self.assertEqual(done.stderr, "")
        else:
            self.assertRegex(done.stderr, r"\Adslaunch: checkpoint: .*\n\Z")
        return done

    def faulty(self, at, kind, *words):
        """Runs the tool with the fault `kind` at the change number `at` to self.folder."""
        return subprocess.run([TRAIN, "checkpoint", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=60, env={**os.environ, "LD_PRELOAD": FAULTS, "FILE_FAULTS_FOLDER": os.path.realpath(self.folder),
                                               "FILE_FAULTS_TRACE": os.path.join(self.folder, "..", os.path.basename(self.folder) + ".trace"),
                                               "FILE_FAULTS_AT": str(at), "FILE_FAULTS_KIND": kind})

    def changes(self, *words):
        """Returns the changes that the tool makes to self.folder, in order."""
        trace = os.path.join(self.folder, "..", os.path.basename(self.folder) + ".trace")
        self.addCleanup(lambda: os.path.exists(trace) and os.unlink(trace))
        open(trace, "w").close()  # discards the changes of earlier runs
        done = self.faulty(0, "before", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(trace) as file:
            return [json.loads(line) for line in file]

    def expect_weights(self, out, dtype=torch.float32):
        tensors = load_file(os.path.join(out, "model.safetensors"))
        self.assertEqual(set(tensors), set(self.weights))
        for name, tensor in self.weights.items():
            self.assertEqual(tensors[name].dtype, dtype)
            self.assertTrue(torch.equal(tensors[name], tensor.to(dtype)), name)

    def test_transformers_loads_converted_checkpoint(self):
        for given, dtype in ((None, torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)):
            with self.subTest(given):
                out = self.path(f"out-{given}")
                done = self.tool("convert", self.source, out, *(["--dtype", given] if given else []))
                self.assertIn("copied config.json, generation_config.json, tokenizer.json", done.stdout)
                self.assertIn("lm_head.weight is not written: it shares transformer.wte.weight", done.stdout)
                self.expect_weights(out, dtype)
                model, report = transformers.AutoModelForCausalLM.from_pretrained(out, dtype=dtype, output_loading_info=True)
                self.assertFalse(report["missing_keys"] or report["unexpected_keys"] or report["mismatched_keys"])
                self.assertTrue(torch.equal(model.lm_head.weight, self.weights["transformer.wte.weight"].to(dtype)))
                self.assertEqual(sorted(os.listdir(out)),
                                 ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json"])

    def test_accepts_each_folder_and_prefix(self):
        self.tool("convert", self.inner, self.path("a"), "--prefix", "transformer.")
        self.assertIn("wte.weight", load_file(self.path("a", "model.safetensors")))
        self.assertTrue(os.path.exists(self.path("a", "config.json")), "it is beside the inner folder")
        refused = self.tool("convert", self.source, self.path("a"), code=USAGE)
        self.assertIn("is there already; give another folder, or --force", refused.stderr)
        self.tool("convert", self.source, self.path("a"), "--force")
        self.expect_weights(self.path("a"))

    def test_ls_describes_checkpoint(self):
        text = self.tool("ls", self.source).stdout
        for wanted in (r"program +DeepSpeed 0\.19\.8", r"step +5", rf"ranks +{RANKS}", r"ZeRO stage +3",
                       r"optimizer +AdamW", r"dtype +bf16", rf"tensors +{len(self.weights)} with \d+ elements",
                       r"state +complete", r"shared +lm_head.weight is transformer.wte.weight"):
            self.assertRegex(text, rf"(?m)^  {wanted}")
        entry, = json.loads(self.tool("ls", self.source, "--json").stdout)
        self.assertEqual((entry["step"], entry["world_size"], entry["zero_stage"], entry["state"]), (5, RANKS, 3, "whole"))
        self.assertEqual(entry["elements"], sum(tensor.numel() for tensor in self.weights.values()))
        self.assertEqual(entry["aliases"], {"lm_head.weight": "transformer.wte.weight"})

    def test_ls_lists_several_checkpoints(self):
        write_zero3(self.source, self.weights, 2, step=10)
        os.unlink(self.rank_file(1))
        entries = json.loads(self.tool("ls", self.source, "--json").stdout)
        self.assertEqual([(e["tag"], e["step"], e["world_size"], e["state"], e["latest"]) for e in entries],
                         [("global_step5", 5, 3, "damaged", False), ("global_step10", 10, 2, "whole", True)])
        self.assertEqual(entries[0]["missing"], [os.path.basename(self.rank_file(1))])
        self.assertEqual(len(self.tool("ls", self.source).stdout.splitlines()), 3)

    def test_verify_names_missing_and_short_files(self):
        self.assertIn("complete: " + self.source, self.tool("verify", self.source).stdout)
        os.truncate(self.rank_file(2), os.path.getsize(self.rank_file(2)) // 2)
        done = self.tool("verify", self.source, code=BAD_INPUT)
        self.assertIn(self.rank_file(2), done.stderr)
        os.unlink(self.rank_file(2))
        done = self.tool("verify", self.source, code=BAD_INPUT)
        self.assertIn("missing: " + os.path.basename(self.rank_file(2)), done.stdout)
        out = self.path("out")
        refused = self.tool("convert", self.source, out, code=BAD_INPUT)
        self.assertIn(os.path.basename(self.rank_file(2)), refused.stderr)
        self.assertFalse(os.path.exists(out))

    def test_verify_names_file_that_was_changed_just_now(self):
        os.unlink(self.rank_file(2))
        self.assertNotIn("may still be being saved", self.tool("verify", self.source, code=BAD_INPUT).stderr)
        os.utime(self.rank_file(1))
        self.assertRegex(self.tool("verify", self.source, code=BAD_INPUT).stderr,
                         re.escape(self.rank_file(1)) + r" was changed \d+ s ago, so the checkpoint may still be being saved")

    def test_own_checkpoint_has_weights_and_optimizer_state(self):
        saves = self.path("run")
        self.assertIn("--checkpoint_dir", self.tool("convert", self.source, saves, "--to", "dslaunch").stdout)
        entry, = json.loads(self.tool("ls", saves, "--json").stdout)
        self.assertEqual((entry["tag"], entry["step"], entry["state"], entry["latest"], entry["optimizer"]),
                         ("step_000005", 5, "whole", True, "AdamW"))
        self.tool("verify", saves)
        own = os.path.join(saves, "step_000005")
        tensors = {**load_file(os.path.join(own, "model.safetensors")), **load_file(os.path.join(own, "optimizer.safetensors"))}
        for name, tensor in self.weights.items():
            self.assertTrue(torch.equal(tensors[name], tensor))
            self.assertTrue(torch.equal(tensors["optimizer/exp_avg/" + name], tensor * 2))
            self.assertTrue(torch.equal(tensors["optimizer/exp_avg_sq/" + name], tensor.abs() * 3))
        self.assertIn(f"equal: {3 * len(self.weights)} tensors", self.tool("diff", self.source, own).stdout)
        self.assertIn("step_000005 is there already", self.tool("convert", self.source, saves, "--to", "dslaunch", code=USAGE).stderr)
        self.tool("convert", self.source, saves, "--to", "dslaunch", "--force")
        self.tool("export", own, self.path("hf"))
        self.expect_weights(self.path("hf"))

    def test_training_resumes_from_converted_checkpoint(self):
        self.tool("convert", self.source, self.path("run"), "--to", "dslaunch")
        with open(self.path("text"), "wb") as file:
            file.write(b"a line of a text that is easy\n" * 200)
        wanted = recipe(optimizer={"type": "AdamW", "params": {"lr": 0.001}}, engine={"train_batch_size": 8},
                        run={"steps": 7, "seed": 1, "checkpoint_dir": self.path("run")})
        wanted.update(model={"type": "gpt2", "vocab_size": 256, "n_positions": 16, "n_embd": 24, "n_layer": 2, "n_head": 2},
                      data={"type": "text", "path": self.path("text")})
        ranks = run(wanted, 2)
        self.assertEqual([rank.code for rank in ranks], [0, 0], ranks[0].err)
        self.assertIn("resuming from " + self.path("run", "step_000005"), ranks[0].out)
        entries = json.loads(self.tool("ls", self.path("run"), "--json").stdout)
        self.assertEqual([(e["tag"], e["step"]) for e in entries], [("step_000005", 5), ("step_000007", 7)])

    def test_other_forms_have_same_tensors(self):
        for kind in ("deepspeed-universal", "dcp"):
            with self.subTest(kind):
                out = self.path(kind)
                self.tool("convert", self.source, out, "--to", kind)
                self.assertIn(f"equal: {3 * len(self.weights)} tensors", self.tool("diff", self.source, out).stdout)
                refused = self.tool("convert", self.source, out, "--to", kind, "--force", code=USAGE)
                self.assertIn("is there already; give another folder", refused.stderr)
                self.assertEqual([name for name in os.listdir(self.folder) if name.startswith(".")], [], "temporary")

    def test_diff_names_largest_difference(self):
        a, b = self.path("a.safetensors"), self.path("b.safetensors")
        one = {"same": torch.arange(5), "w": torch.tensor([1.0, -2.0, 4.0]), "nan": torch.tensor([float("nan"), 1.0]),
               "only_a": torch.zeros(2), "shape": torch.zeros(2, 3)}
        other = {"same": torch.arange(5), "w": torch.tensor([1.0, -2.5, 4.0]), "nan": torch.tensor([float("nan"), 1.0]),
                 "only_b": torch.zeros(2), "shape": torch.zeros(3, 2)}
        save_file(one, a)
        save_file(other, b)
        text = self.tool("diff", a, b, code=DIFFERENT).stdout
        self.assertIn("w: F32 [3], largest difference 0.5, relative 0.2\n", text)
        self.assertIn("shape: F32 [2, 3] and F32 [3, 2]\n", text)
        self.assertIn(f"only_a: only in {a}, F32 [2]\n", text)
        self.assertTrue(text.endswith("4 of 6 tensors differ\n"), text)
        found = json.loads(self.tool("diff", a, b, "--json", code=DIFFERENT).stdout)
        self.assertEqual((found["equal"], found["compared"]), (False, 6))
        self.assertEqual([(d["name"], d["absolute"], d["relative"]) for d in found["differences"]],
                         [("only_a", None, None), ("only_b", None, None), ("shape", None, None), ("w", 0.5, 0.2)])
        self.assertEqual(self.tool("diff", a, a).stdout, "equal: 5 tensors\n")
        self.assertTrue(json.loads(self.tool("diff", a, a, "--json").stdout)["equal"])

    def test_diff_compares_kinds_and_dtypes(self):
        self.tool("convert", self.source, self.path("fp32"))
        done = self.tool("diff", self.source, self.path("fp32"))
        self.assertIn(f"not compared: {self.source} has optimizer state, ", done.stdout)
        self.assertIn(f"equal: {len(self.weights)} tensors", done.stdout)
        self.tool("convert", self.source, self.path("bf16"), "--dtype", "bf16")
        text = self.tool("diff", self.path("fp32"), self.path("bf16"), code=DIFFERENT).stdout
        self.assertRegex(text, r"transformer.wte.weight: F32 \[256, 24\] and BF16 \[256, 24\], largest difference 0\.00")
        self.assertIn("no such file", self.tool("diff", self.source, self.path("nowhere"), code=BAD_INPUT).stderr)

    def test_same_command_continues_killed_conversion(self):
        saves = self.path("run")
        words = ("convert", self.source, saves, "--to", "dslaunch")
        changes = self.changes(*words)
        shutil.rmtree(saves)
        at = next(i for i, change in enumerate(changes, 1)
                  if change["call"] == "write" and change["path"].endswith("/optimizer.safetensors"))
        self.assertEqual(self.faulty(at, "half", *words).returncode, -9)
        self.assertEqual([name for name in os.listdir(saves) if name.startswith("step")], [])
        begun, = [name for name in os.listdir(saves) if name.startswith("tmp-step")]
        kept = os.stat(os.path.join(saves, begun, "model.safetensors"))
        self.tool(*words)
        self.tool("verify", saves)
        self.assertEqual(os.stat(os.path.join(saves, "step_000005", "model.safetensors")).st_ino, kept.st_ino)
        self.assertEqual(sorted(os.listdir(os.path.join(saves, "step_000005"))),
                         ["manifest.json", "model.safetensors", "optimizer.safetensors"])
        self.tool("diff", self.source, os.path.join(saves, "step_000005"))

    def test_kill_leaves_no_half_written_file(self):
        """Kills the tool at every change with DSLAUNCH_TEST_FULL=1, otherwise at every fifth."""
        out = self.path("out")
        words = ("convert", self.source, out)
        changes = self.changes(*words)
        for at in range(1, len(changes) + 1, 1 if os.environ.get("DSLAUNCH_TEST_FULL") else 5):
            shutil.rmtree(out)
            self.faulty(at, "half" if changes[at - 1]["call"] == "write" else "before", *words)
            if os.path.exists(os.path.join(out, "model.safetensors")):
                self.expect_weights(out)
            if os.path.exists(os.path.join(out, "tmp-journal")) or not os.path.exists(os.path.join(out, "config.json")):
                self.tool(*words)
            self.expect_weights(out)
            self.assertEqual(sorted(os.listdir(out)),
                             ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json"], changes[at - 1])

    def test_full_disk_is_named_and_leaves_nothing_half_written(self):
        for kind in ("safetensors", "dslaunch"):
            with self.subTest(kind):
                out = self.path(kind)
                words = ("convert", self.source, out, "--to", kind)
                changes = self.changes(*words)
                shutil.rmtree(out)
                at = next(i for i, change in enumerate(changes, 1)
                          if change["call"] == "write" and change["path"].endswith("model.safetensors"))
                done = self.faulty(at, "ENOSPC", *words)
                self.assertEqual(done.returncode, IO, done.stderr)
                self.assertIn("model.safetensors: cannot be written: No space left on device", done.stderr)
                self.assertIn("KiB were to be written; the same command continues", done.stderr)
                left = [name for _, _, names in os.walk(out) for name in names]
                self.assertEqual([name for name in left if name.endswith(".safetensors")], [])
                self.tool(*words)

    def test_rejects_wrong_use(self):
        self.assertIn("--dtype is for --to safetensors",
                      self.tool("convert", self.source, self.path("o"), "--to", "dslaunch", "--dtype", "bf16", code=USAGE).stderr)
        self.assertIn("usage: ", self.tool("convert", self.source, self.path("o"), "--to", "onnx", code=USAGE).stderr)
        self.assertIn("usage: ", self.tool("diff", self.source, code=USAGE).stderr)
        self.assertIn("there is no such file", self.tool("convert", self.path("nowhere"), self.path("o"), code=BAD_INPUT).stderr)
        os.mkdir(self.path("empty"))
        self.assertIn("is not a checkpoint that dslaunch knows", self.tool("convert", self.path("empty"), self.path("o"), code=BAD_INPUT).stderr)
        self.assertFalse(os.path.exists(self.path("o")))


if __name__ == "__main__":
    unittest.main()
