"""Tests that adapters train, save, load and merge as PEFT's do, in every layout."""

import json
import os
import shutil
import tempfile
import unittest
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
warnings.filterwarnings("ignore", message="fan_in_fan_out")

import peft
import safetensors.torch
import torch
import transformers

from decoder_test import config_of, make
from inputs import write_text
from models_test import trace
from oracle import read_text
from parity_test import GRAD_NORM_WITHIN, LOSS_WITHIN, deviation, traces
from spawn import TRAIN, assert_refused, run, run_with_metrics, start_once
from table import all_cells, pairwise_cells
from zero_test import SMALL

BAD_INPUT = 65
LENGTH, BATCH, STEPS = 16, 4, 20
TOKENS = torch.randint(0, 256, (3, LENGTH), generator=torch.Generator().manual_seed(5))
# With eps 1e-8, AdamW steps along gradients that are rounding only: an ulp in the initial values then moves weights of PEFT
# itself by 8e-4 in 20 steps; with 1e-5 by 3e-6.
OPTIMIZER = {"lr": 0.002, "betas": [0.9, 0.999], "eps": 1e-5, "weight_decay": 0.01}
BASES = {
    "llama": lambda: config_of("llama", vocab_size=256, num_hidden_layers=4, bias=True),
    "qwen3 tied": lambda: config_of("qwen3", vocab_size=256, num_hidden_layers=4, tied=True),
    "gpt2": lambda: transformers.GPT2Config(vocab_size=256, n_positions=LENGTH, n_embd=32, n_layer=4, n_head=4,
                                            resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, bos_token_id=None,
                                            eos_token_id=None),
}
TARGETS = {"llama": ["q_proj", "v_proj"], "qwen3 tied": ["mlp.down_proj", "o_proj"], "gpt2": ["c_attn", "mlp.c_proj"]}
FULL = os.environ.get("DSLAUNCH_TEST_FULL") == "1"


def cells_of(factors):
    return (all_cells if FULL else pairwise_cells)(factors)


def load_adapter(folder):
    return safetensors.torch.load_file(os.path.join(folder, "adapter_model.safetensors"))


def read_json(*path):
    with open(os.path.join(*path)) as file:
        return json.load(file)


def engine_of(**keys):
    return {"train_batch_size": BATCH, "gradient_clipping": 1.0, "optimizer": {"type": "AdamW", "params": OPTIMIZER}, **keys}


class LoraCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.text = os.path.join(cls.folder, "text")
        write_text(cls.text, LENGTH * BATCH * STEPS + 1)
        cls.bases, cls.sections = {}, {}
        for name, config in BASES.items():
            cls.bases[name] = os.path.join(cls.folder, name.replace(" ", "_"))
            make(config()).save_pretrained(cls.bases[name])
            cls.sections[name] = trace(config=read_json(cls.bases[name], "config.json"), input_shape=[LENGTH], seed=3,
                                       tokens=TOKENS.tolist(), targets=[0] * TOKENS.numel())["section"]

    def base(self, name):
        return transformers.AutoModelForCausalLM.from_pretrained(self.bases[name], attn_implementation="eager")

    def peft_folder(self, name, targets, rank=3, alpha=5, rslora=False, dropout=0.0):
        """Returns a folder of PEFT with randomly drawn A and B, and the model."""
        torch.manual_seed(11)
        config = peft.LoraConfig(task_type="CAUSAL_LM", r=rank, lora_alpha=alpha, lora_dropout=dropout,
                                 target_modules=targets, use_rslora=rslora, init_lora_weights=False)
        model = peft.get_peft_model(self.base(name), config)
        with torch.no_grad():  # small values, because large updates would amplify rounding
            for key, parameter in model.named_parameters():
                if "lora_B" in key:
                    parameter.uniform_(-0.05, 0.05)
        folder = tempfile.mkdtemp(dir=self.folder)
        model.save_pretrained(folder)
        return folder, model

    def recipe(self, name, lora, engine=None, **run_keys):
        return {"model": self.sections[name], "lora": lora,
                "data": {"type": "text", "path": self.text, "block_size": LENGTH, "shuffle": False},
                "run": {"steps": STEPS, "seed": 7, "init_weights": self.bases[name], **run_keys},
                "engine": engine_of(**(engine or {}))}

    def section_of(self, folder):
        config = read_json(folder, "adapter_config.json")
        targets = config["target_modules"]
        return {"rank": config["r"], "alpha": config["lora_alpha"], "dropout": config["lora_dropout"],
                "use_rslora": config["use_rslora"], "targets": targets if targets == "all-linear" else sorted(targets),
                "init_weights": folder}

    def logits(self, name, section):
        answer = trace(model=self.sections[name], input_shape=[LENGTH], seed=3, weights=self.bases[name], lora=section,
                       tokens=TOKENS.tolist(), targets=[0] * TOKENS.numel())
        self.assertNotIn("error", answer)
        return torch.tensor(answer["logits"]).view(*TOKENS.shape, -1)

    def refused(self, recipe, *words, ranks=1):
        assert_refused(self, run(recipe, ranks), BAD_INPUT, *words)

    def tool(self, *words, code=0):
        done = start_once.run([TRAIN, "checkpoint", *words])
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout + done.stderr

    def assert_same_bytes(self, ours, theirs):
        self.assertEqual(set(ours), set(theirs))
        for name, tensor in theirs.items():
            self.assertEqual(ours[name].dtype, tensor.dtype, name)
            self.assertTrue(torch.equal(ours[name].view(torch.uint8), tensor.view(torch.uint8)), name)


class PeftTest(LoraCase):
    def train_in_peft(self, model):
        """Trains in PEFT and returns {loss, grad_norm} of each step, on the batches that dslaunch uses."""
        inputs, targets = read_text(self.text, LENGTH).tensors
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(trained, **OPTIMIZER)
        model.train()
        steps = []
        for step in range(STEPS):
            samples = slice(step * BATCH, (step + 1) * BATCH)
            logits = model(inputs[samples]).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets[samples].flatten())
            optimizer.zero_grad()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            steps.append({"step": step + 1, "loss": loss.item(), "grad_norm": norm.item(), "skipped": False})
        return steps

    def test_20_steps_match_peft(self):
        factors = {"base": tuple(BASES), "targets": ("some", "all-linear"), "rslora": (False, True), "rank": (1, 3)}
        for cell in cells_of(factors):
            with self.subTest(cell=cell):
                targets = TARGETS[cell["base"]] if cell["targets"] == "some" else "all-linear"
                folder, theirs = self.peft_folder(cell["base"], targets, cell["rank"], rslora=cell["rslora"])
                export = os.path.join(folder, "export")
                _, metrics = run_with_metrics(
                    self.recipe(cell["base"], self.section_of(folder), export_hf=export), 1)
                steps = self.train_in_peft(theirs)
                loss, norm = (deviation(metrics, steps, key)[0] for key in ("loss", "grad_norm"))
                print(*cell.values(), "loss within %.1e, grad_norm within %.1e" % (loss, norm), flush=True)
                self.assertLess(loss, 1e-5)
                self.assertLess(norm, 1e-5)
                trained = peft.get_peft_model_state_dict(theirs)
                ours = load_adapter(export)
                self.assertEqual(set(ours), set(trained))
                for name, tensor in trained.items():
                    self.assertLess((ours[name] - tensor).abs().max().item(), 2e-5, name)

    def test_peft_loads_export(self):
        for name in BASES:
            with self.subTest(base=name):
                export = os.path.join(tempfile.mkdtemp(dir=self.folder), "export")
                lora = {"rank": 4, "alpha": 8, "dropout": 0.1, "targets": "all-linear"}
                _, metrics = run_with_metrics(self.recipe(name, lora, export_hf=export), 1)
                self.assertLess(metrics[-1]["loss"], metrics[0]["loss"])
                theirs = peft.PeftModel.from_pretrained(self.base(name), export).eval()
                self.assertEqual(theirs.peft_config["default"].fan_in_fan_out, name == "gpt2")
                self.assertEqual(theirs.peft_config["default"].base_model_name_or_path, self.bases[name])
                loaded = peft.get_peft_model_state_dict(theirs)
                self.assert_same_bytes(load_adapter(export), loaded)
                self.assertGreater(min(tensor.abs().max() for tensor in loaded.values()), 0)
                with torch.no_grad():
                    difference = (self.logits(name, {**lora, "init_weights": export}) - theirs(TOKENS).logits).abs().max()
                self.assertLess(difference.item(), 1e-5)

    def test_export_returns_bytes_of_peft(self):
        sharded = {"zero_optimization": {"stage": 3, **SMALL}}
        staged = {"pipeline": {"stages": 2}, "zero_optimization": {"stage": 1}, "gradient_accumulation_steps": 2}
        divided = {"tensor_parallel": {"autotp_size": 2}}
        for name, engine, ranks in (("llama", {}, 1), ("gpt2", sharded, 2), ("qwen3 tied", staged, 2), ("llama", divided, 2),
                                    ("gpt2", divided, 2)):
            with self.subTest(base=name):
                folder, _ = self.peft_folder(name, TARGETS[name])
                export = os.path.join(folder, "export")
                recipe = self.recipe(name, self.section_of(folder), {**engine}, steps=1, export_hf=export)
                recipe["engine"]["optimizer"]["params"] = {**OPTIMIZER, "lr": 0}
                run_with_metrics(recipe, ranks)
                self.assert_same_bytes(load_adapter(export), load_adapter(folder))
                ours, theirs = (read_json(where, "adapter_config.json") for where in (export, folder))
                for key in "r", "lora_alpha", "lora_dropout", "use_rslora", "bias", "peft_type", "task_type":
                    self.assertEqual(ours[key], theirs[key], key)
                self.assertEqual(sorted(ours["target_modules"]), sorted(theirs["target_modules"]))

    def test_draws_initial_values_as_peft(self):
        """A must be drawn from PEFT's distribution, B must be zero, and the base must be the same as without
        adapters."""
        answer = trace(model=self.sections["llama"], input_shape=[LENGTH], seed=3, tokens=TOKENS.tolist(),
                       targets=[0] * TOKENS.numel(), lora={"rank": 64, "alpha": 1, "targets": "all-linear"})
        alone = trace(model=self.sections["llama"], input_shape=[LENGTH], seed=3, tokens=TOKENS.tolist(),
                      targets=[0] * TOKENS.numel())
        self.assertEqual(answer["logits"], alone["logits"])
        for name, total in answer["sums"].items():
            if name.endswith("lora_B.weight"):
                self.assertEqual(total, 0)
            elif name.endswith("lora_A.weight"):  # the variance of uniform(-1/sqrt(n), 1/sqrt(n)) is 1/(3 n)
                self.assertAlmostEqual(total / 64 * 3, 1, delta=0.1)
            else:
                self.assertEqual(total, alone["sums"][name], name)


class LayoutsTest(LoraCase):
    def test_layouts_match_one_process(self):
        factors = {"base": tuple(BASES), "zero": (0, 1, 2, 3), "stages": (1, 2, 4), "micro_batches": (1, 2),
                   "recomputes": (False, True), "precision": ("fp32", "bf16")}
        alone = {}
        for cell in cells_of(factors):
            precision, micro_batches, stages = cell["precision"], cell["micro_batches"], cell["stages"]
            common = {"bf16": {"enabled": precision == "bf16"}, "gradient_accumulation_steps": micro_batches}
            engine = {**common, "zero_optimization": {"stage": cell["zero"], **SMALL}}
            if stages == 1:
                engine["activation_checkpointing"] = {"number_checkpoints": 2 * cell["recomputes"]}
            else:
                engine["pipeline"] = {"stages": stages, "schedule": "1f1b",
                                      "activation_checkpoint_interval": int(cell["recomputes"])}
            lora = {"rank": 4, "alpha": 8, "targets": TARGETS[cell["base"]] if cell["zero"] % 2 else "all-linear"}
            with self.subTest(cell=cell):
                key = json.dumps([cell["base"], lora, common])
                if key not in alone:
                    alone[key] = run_with_metrics(self.recipe(cell["base"], lora, common), 1)[1]
                _, metrics = run_with_metrics(self.recipe(cell["base"], lora, engine), stages if stages > 1 else 2)
                loss, norm = (deviation(metrics, alone[key], name)[0] for name in ("loss", "grad_norm"))
                print(*cell.values(), "loss within %.1e, grad_norm within %.1e" % (loss, norm), flush=True)
                self.assertLess(loss, LOSS_WITHIN[precision])
                self.assertLess(norm, 2 * GRAD_NORM_WITHIN[precision])
                self.assertEqual(traces(metrics), traces(alone[key]))

    def test_tensor_parallel_matches_one_process(self):
        """Tests adapters of layers divided by outputs and by inputs, and of key and value heads that two ranks
        share."""
        factors = {"base": ("llama", "gpt2"), "ranks": (2, 4), "tensor": (2, 4), "zero": (0, 1, 3),
                   "tokens": (False, True), "precision": ("fp32", "bf16")}
        alone = {}
        for cell in cells_of(factors):
            precision, size = cell["precision"], min(cell["tensor"], cell["ranks"])
            common = {"bf16": {"enabled": precision == "bf16"}}
            engine = {**common, "zero_optimization": {"stage": cell["zero"], **SMALL},
                      "tensor_parallel": {"autotp_size": size, "sequence_parallel": cell["tokens"]}}
            lora = {"rank": 4, "alpha": 8, "targets": "all-linear"}
            with self.subTest(cell=cell):
                key = (cell["base"], precision)
                if key not in alone:
                    alone[key] = run_with_metrics(self.recipe(cell["base"], lora, common), 1)[1]
                _, metrics = run_with_metrics(self.recipe(cell["base"], lora, engine), cell["ranks"])
                loss, norm = (deviation(metrics, alone[key], name)[0] for name in ("loss", "grad_norm"))
                print(*cell.values(), "loss within %.1e, grad_norm within %.1e" % (loss, norm), flush=True)
                self.assertLess(loss, LOSS_WITHIN[precision])
                self.assertLess(norm, 2 * GRAD_NORM_WITHIN[precision])

    def test_dropout_trains_on_tensor_parallel_ranks(self):
        """The losses are not compared, because the masks of divided inputs differ from the masks of one process."""
        lora = {"rank": 4, "alpha": 8, "dropout": 0.2, "targets": "all-linear"}
        engine = {"tensor_parallel": {"autotp_size": 2}}
        for recomputes in 0, 2:
            engine["activation_checkpointing"] = {"number_checkpoints": recomputes}
            _, metrics = run_with_metrics(self.recipe("llama", lora, engine), 2)
            if not recomputes:
                kept = metrics
                self.assertLess(metrics[-1]["loss"], metrics[0]["loss"])
        self.assertEqual([step["loss"] for step in metrics], [step["loss"] for step in kept])

    def test_zero_bubble_and_dropout_match_one_process(self):
        lora = {"rank": 4, "alpha": 8, "dropout": 0.2, "targets": "all-linear"}
        common = {"gradient_accumulation_steps": 2}
        _, alone = run_with_metrics(self.recipe("llama", lora, common), 1)
        staged = {**common, "pipeline": {"stages": 2, "schedule": "zb-h1"}}
        _, metrics = run_with_metrics(self.recipe("llama", lora, staged), 2)
        self.assertLess(deviation(metrics, alone, "loss")[0], LOSS_WITHIN["fp32"])
        self.assertLess(deviation(metrics, alone, "grad_norm")[0], 2 * GRAD_NORM_WITHIN["fp32"])

    def test_planned_memory_is_within_three_percent(self):
        """The base has no gradients, masters or optimizer state."""
        lora = {"rank": 8, "alpha": 8, "targets": "all-linear"}
        model = {**self.sections["llama"], "hidden_size": 128, "intermediate_size": 320, "head_dim": 32}
        trained = 4 * 8 * (2 * (128 + 128) + 2 * (128 + 64) + 3 * (128 + 320))
        for stage, ranks in ((0, 1), (1, 2), (2, 2), (3, 2)):
            with self.subTest(stage=stage):
                recipe = self.recipe("llama", lora, {
                    "bf16": {"enabled": True}, "memory_breakdown": True,
                    "zero_optimization": {"stage": stage, **SMALL}}, steps=3)
                recipe["model"] = model
                del recipe["run"]["init_weights"]
                file = os.path.join(self.folder, "plan%d.jsonl" % stage)
                planned = json.loads(json.dumps(recipe))
                planned["run"].update(mode="plan_memory", ranks=ranks, metrics_jsonl=file)
                self.assertEqual(run(planned)[0].code, 0)
                with open(file) as lines:
                    plan = json.loads(lines.readline())["plan"]
                memory = run_with_metrics(recipe, ranks)[1][-1]["memory"]
                masters = plan["optimizer"] + plan["master_weights"]
                print(stage, plan, memory, flush=True)
                self.assertAlmostEqual(masters / (12 * trained / (ranks if stage else 1)), 1, delta=0.03)
                self.assertAlmostEqual(memory["optimizer"] / masters, 1, delta=0.03)
                self.assertAlmostEqual(memory["gradients"] / plan["gradients"], 1, delta=0.03)
                self.assertAlmostEqual(memory["parameters"] / plan["parameters"], 1, delta=0.03)
                self.assertAlmostEqual(memory["tensors"] / plan["together"], 1, delta=0.03)


class CheckpointTest(LoraCase):
    LORA = {"rank": 4, "alpha": 8, "targets": "all-linear"}

    def trained(self, name="llama", steps=4, engine=None, ranks=1, lora=None, **keys):
        """Trains with adapters. Returns the folder of the run's checkpoints, and its metrics."""
        folder = tempfile.mkdtemp(dir=self.folder)
        recipe = self.recipe(name, lora or self.LORA, engine, steps=steps, checkpoint_dir=folder, **keys)
        return folder, run_with_metrics(recipe, ranks)[1]

    def test_checkpoint_holds_adapters_only(self):
        for engine, ranks in (({}, 1), ({"zero_optimization": {"stage": 3, **SMALL}}, 2),
                              ({"pipeline": {"stages": 2}, "gradient_accumulation_steps": 2}, 2)):
            with self.subTest(engine=engine):
                folder, _ = self.trained(engine=engine, ranks=ranks)
                with open(os.path.join(folder, "step_000004", "manifest.json")) as file:
                    manifest = json.loads(file.read())
                names = [tensor["name"] for tensor in manifest["tensors"]
                         if not tensor["name"].startswith(("generator/", "rank_state/"))]
                self.assertEqual(len(names), 4 * 7 * 2 * 3)
                self.assertTrue(all(name.endswith((".lora_A.weight", ".lora_B.weight")) for name in names), names)
                record = json.loads(manifest["adapters"])
                weights = safetensors.torch.load_file(os.path.join(self.bases["llama"], "model.safetensors"))
                self.assertEqual(set(record["base"]["tensors"]), set(weights))
                self.assertEqual(record["base"]["path"], self.bases["llama"])

    def test_resumes_in_other_layouts(self):
        _, whole = self.trained(steps=8)
        for engine, ranks in (({}, 1), ({"zero_optimization": {"stage": 3, **SMALL}}, 2),
                              ({"pipeline": {"stages": 2}}, 2),
                              ({"tensor_parallel": {"autotp_size": 2}}, 2)):
            with self.subTest(engine=engine):
                folder, first = self.trained(steps=4)
                recipe = self.recipe("llama", self.LORA, engine, steps=8, checkpoint_dir=folder)
                _, rest = run_with_metrics(recipe, ranks)
                self.assertEqual([step["step"] for step in rest], [5, 6, 7, 8])
                self.assertLess(deviation(first + rest, whole, "loss")[0], LOSS_WITHIN["fp32"])

    def test_refuses_other_base_and_other_adapters(self):
        folder, _ = self.trained()
        changed = os.path.join(self.folder, "changed")
        shutil.copytree(self.bases["llama"], changed)
        weights = safetensors.torch.load_file(os.path.join(changed, "model.safetensors"))
        weights["model.layers.2.mlp.up_proj.weight"][3, 4] += 1e-3
        safetensors.torch.save_file(weights, os.path.join(changed, "model.safetensors"), metadata={"format": "pt"})
        resumed = self.recipe("llama", self.LORA, steps=8, checkpoint_dir=folder)
        for ranks in 1, 2:
            other = {**resumed, "run": {**resumed["run"], "init_weights": changed}}
            self.refused(other, self.bases["llama"], "not on " + changed, "model.layers.2.mlp.up_proj.weight differs",
                         ranks=ranks)
        for mode in "train", "evaluate":
            for lora, words in (({**self.LORA, "alpha": 9}, "lora.alpha 8.0, this run has 9.0"),
                                ({**self.LORA, "rank": 2}, "lora.rank 4, this run has 2"),
                                ({**self.LORA, "targets": ["q_proj"]}, 'lora.targets "all-linear", this run has')):
                recipe = {**resumed, "lora": lora, "data": {**resumed["data"], "val_path": self.text},
                          "run": {**resumed["run"], "mode": mode}}
                self.refused(recipe, folder, words)
        whole = {key: value for key, value in resumed.items() if key != "lora"}
        self.refused(whole, "holds adapters of a run with lora")

    def test_refuses_whole_checkpoint(self):
        folder = tempfile.mkdtemp(dir=self.folder)
        recipe = self.recipe("llama", self.LORA, steps=2, checkpoint_dir=folder)
        run_with_metrics({key: value for key, value in recipe.items() if key != "lora"}, 1)
        self.refused(recipe, "holds whole weights, but the recipe has lora")
        self.assertIn("no adapters to merge", self.tool(
            "export", os.path.join(folder, "step_000002"), os.path.join(folder, "out"), "--merge_lora", code=BAD_INPUT))

    def test_export_writes_adapters(self):
        folder, _ = self.trained(export_hf=os.path.join(self.folder, "by_run"))
        out = os.path.join(folder, "out")
        self.tool("export", os.path.join(folder, "step_000004"), out)
        self.assert_same_bytes(load_adapter(out), load_adapter(os.path.join(self.folder, "by_run")))
        self.assertEqual(read_json(out, "adapter_config.json"),
                         read_json(self.folder, "by_run", "adapter_config.json"))

    def test_merged_weights_match_adapters(self):
        for name in BASES:
            with self.subTest(base=name):
                folder, _ = self.trained(name, steps=STEPS, lora={**self.LORA, "targets": TARGETS[name]})
                tag, out, merged = (os.path.join(folder, end) for end in ("step_000020", "out", "merged"))
                self.tool("export", tag, out)
                self.tool("export", tag, merged, "--merge_lora")
                with_adapters = peft.PeftModel.from_pretrained(self.base(name), out).eval()
                alone, report = transformers.AutoModelForCausalLM.from_pretrained(
                    merged, output_loading_info=True, attn_implementation="eager")
                self.assertFalse(any(report.values()), report)
                with torch.no_grad():
                    wanted, found, before = (model.eval()(TOKENS).logits
                                             for model in (with_adapters, alone, self.base(name)))
                self.assertLess((found - wanted).abs().max().item(), 1e-6 * max(1, wanted.abs().max().item()))
                self.assertGreater((found - before).abs().max().item(), 1e-3)
                ours, base = (safetensors.torch.load_file(os.path.join(where, "model.safetensors"))
                              for where in (merged, self.bases[name]))
                kept = {key: tensor for key, tensor in base.items()
                        if not any(key.endswith(target + ".weight") for target in TARGETS[name])}
                self.assert_same_bytes({key: ours[key] for key in kept}, kept)
                self.assertEqual(set(ours), set(base))
                self.assertEqual(read_json(merged, "config.json"), read_json(self.bases[name], "config.json"))

    def test_merge_refuses_changed_and_missing_base(self):
        changing = os.path.join(self.folder, "changing")
        shutil.copytree(self.bases["llama"], changing)
        folder, _ = self.trained(init_weights=changing)
        weights = safetensors.torch.load_file(os.path.join(changing, "model.safetensors"))
        weights["model.norm.weight"][0] += 1
        safetensors.torch.save_file(weights, os.path.join(changing, "model.safetensors"), metadata={"format": "pt"})
        out = os.path.join(folder, "out")
        answer = self.tool("export", os.path.join(folder, "step_000004"), out, "--merge_lora", code=BAD_INPUT)
        self.assertIn("tensor model.norm.weight has changed since the adapters were trained", answer)
        self.assertFalse(os.path.exists(os.path.join(out, "model.safetensors")))
        shutil.rmtree(changing)
        answer = self.tool("export", os.path.join(folder, "step_000004"), out, "--merge_lora", code=BAD_INPUT)
        self.assertIn(f"trained on the weights in {changing}, which is missing", answer)


class UseTest(LoraCase):
    def test_evaluates_with_adapters_of_peft(self):
        folder, theirs = self.peft_folder("llama", TARGETS["llama"], alpha=30)
        recipe = self.recipe("llama", self.section_of(folder), mode="evaluate",
                             metrics_jsonl=os.path.join(folder, "metrics"))
        recipe["data"]["val_path"] = self.text
        self.assertEqual(run(recipe)[0].code, 0)
        inputs, targets = read_text(self.text, LENGTH).tensors
        with torch.no_grad():
            loss = torch.nn.functional.cross_entropy(theirs.eval()(inputs).logits.flatten(0, 1), targets.flatten())
        with open(os.path.join(folder, "metrics")) as lines:
            self.assertAlmostEqual(json.loads(lines.readline())["eval"]["loss"], loss.item(), delta=1e-5)

    def test_predicts_with_adapters_of_checkpoint(self):
        folder, export = tempfile.mkdtemp(dir=self.folder), os.path.join(self.folder, "predicting")
        lora = {"rank": 4, "alpha": 8, "targets": "all-linear"}
        recipe = self.recipe("llama", lora, {"zero_optimization": {"stage": 3, **SMALL}}, checkpoint_dir=folder,
                             export_hf=export)
        run_with_metrics(recipe, 2)
        recipe["run"].update(mode="predict", prompt="The", max_new_tokens=8, temperature=0)
        del recipe["run"]["export_hf"]
        for rank in run(recipe, 2):
            self.assertEqual(rank.code, 0, rank.err)
        text = run(recipe, 1)[0].out
        theirs = peft.PeftModel.from_pretrained(self.base("llama"), export).eval()
        tokens = list(b"The")
        for _ in range(8):
            with torch.no_grad():
                tokens.append(theirs(torch.tensor([tokens[-LENGTH:]])).logits[0, -1].argmax().item())
        self.assertEqual(text, bytes(tokens).decode(errors="replace") + "\n")

    def test_refuses_wrong_adapters(self):
        folder, _ = self.peft_folder("llama", TARGETS["llama"])
        good = self.section_of(folder)
        for changes, words in (({"targets": ["q_prj"]}, 'lora.targets has "q_prj", which is not a linear layer of the model; '
                                                        "it has down_proj, gate_proj"),
                               ({"targets": ["embed_tokens"]}, 'has "embed_tokens", which is not a linear layer'),
                               ({"targets": ["q_proj"]}, "is not an adapter of the model"),
                               ({"targets": ["q_proj", "v_proj", "o_proj"]}, "holds no tensor base_model.model."),
                               ({"rank": 2}, "r is 3; lora.rank is 2"),
                               ({"alpha": 6}, "lora_alpha is 5.0; lora.alpha is 6.0"),
                               ({"init_weights": self.bases["llama"]}, "adapter_config.json: cannot be read")):
            with self.subTest(changes=changes):
                self.refused(self.recipe("llama", {**good, **changes}), words)
        for targets, words in ((["q_proj"], "is not an adapter of the model"),
                               (["q_prj"], "which is not a linear layer")):
            wanted = self.recipe("llama", {**good, "targets": targets}, {"zero_optimization": {"stage": 3}})
            self.refused(wanted, words, ranks=2)
        self.refused({**self.recipe("llama", good), "model": {"type": "mlp"}, "data": {"type": "idx"}},
                     "lora is a setting of the model gpt2 or decoder")


if __name__ == "__main__":
    unittest.main()
