"""Tests that the decoder computes the same logits and gradients as transformers, and that both read each other's
folders."""

import json
import os
import tempfile
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"

import safetensors.torch
import torch
import transformers

from inputs import write_text
from models_test import trace
from spawn import run
from table import all_cells, pairwise_cells

LENGTH, VOCABULARY = 16, 61
TOKENS = torch.randint(0, VOCABULARY, (3, LENGTH), generator=torch.Generator().manual_seed(5))
TARGETS = torch.randint(0, VOCABULARY, (3, LENGTH), generator=torch.Generator().manual_seed(6))
# Each scaling changes some pairs of a head of 8, whose wavelengths are 6 to 6283 positions.
ROPES = {
    "default": {"rope_type": "default", "rope_theta": 10000.0},
    "linear": {"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0},
    "llama3": {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 128},
    "yarn": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64},
}
WINDOWS = {
    "none": {"use_sliding_window": False},
    "last layer": {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
    "first layer": {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1,
                    "layer_types": ["sliding_attention", "full_attention"]},
}
FACTORS = {
    "llama": {"rope": tuple(ROPES), "bias": (False, True), "tied": (False, True), "head_dim": (None, 8, 10),
              "kv_heads": (4, 2, 1)},
    "mistral": {"rope": ("default", "yarn"), "window": (None, 5, 40), "tied": (False, True), "kv_heads": (4, 2)},
    "qwen2": {"rope": ("default", "yarn"), "window": tuple(WINDOWS), "tied": (False, True), "kv_heads": (4, 2)},
    "qwen3": {"rope": ("default", "yarn"), "window": tuple(WINDOWS), "bias": (False, True), "tied": (False, True),
              "head_dim": (8, 6), "kv_heads": (4, 2)},
}
CONFIGS = {"llama": transformers.LlamaConfig, "mistral": transformers.MistralConfig,
           "qwen2": transformers.Qwen2Config, "qwen3": transformers.Qwen3Config}


def config_of(kind, rope="default", bias=False, tied=False, head_dim=None, kv_heads=2, window=None, **more):
    keys = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 44, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": kv_heads, "max_position_embeddings": 64,
            "rope_parameters": dict(ROPES[rope]), "tie_word_embeddings": tied, "bos_token_id": None,
            "eos_token_id": [3, 4], "pad_token_id": None}
    if head_dim:
        keys["head_dim"] = head_dim
    if kind in ("llama", "qwen3"):
        keys["attention_bias"] = bias
    if kind == "llama":
        keys["mlp_bias"] = bias
    if kind == "mistral":
        keys["sliding_window"] = window
    if kind.startswith("qwen"):
        keys.update(WINDOWS[window or "none"])
    return CONFIGS[kind](**{**keys, **more})


def make(config):
    torch.manual_seed(9)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():  # because with the initial values, swapped norms and biases would not be detected
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def trace_folder(folder, config=None, **more):
    with open(os.path.join(folder, "config.json")) as file:
        config = config or json.load(file)
    return trace(config=config, input_shape=[LENGTH], seed=3, weights=folder, tokens=TOKENS.tolist(),
                 targets=TARGETS.flatten().tolist(), **more)


class DecoderTest(unittest.TestCase):
    def check(self, folder, model, config=None):
        """Compares the logits, and every element of every gradient."""
        grads = os.path.join(folder, "gradients")
        answer = trace_folder(folder, config, gradients=grads)
        self.assertNotIn("error", answer)
        out = model(TOKENS).logits
        self.assertLess((torch.tensor(answer["logits"]) - out.flatten()).abs().max().item(), 1e-5)
        loss = torch.nn.functional.cross_entropy(out.flatten(0, 1), TARGETS.flatten())
        model.zero_grad()
        loss.backward()
        self.assertLess(abs(answer["loss"] - loss.item()), 1e-5)
        ours = safetensors.torch.load_file(os.path.join(grads, "model.safetensors"))
        theirs = {name: parameter.grad for name, parameter in model.named_parameters()}
        self.assertEqual(set(ours), set(theirs))
        for name, grad in theirs.items():
            self.assertLess((ours[name] - grad).abs().max().item(), 1e-5, name)

    def check_table(self, kind):
        full = os.environ.get("DSLAUNCH_TEST_FULL") == "1"
        for cell in (all_cells if full else pairwise_cells)(FACTORS[kind]):
            with self.subTest(kind=kind, **cell), tempfile.TemporaryDirectory() as folder:
                model = make(config_of(kind, **cell))
                model.save_pretrained(folder)
                self.check(folder, model)

    def test_llama_matches_transformers(self):
        self.check_table("llama")

    def test_mistral_matches_transformers(self):
        self.check_table("mistral")

    def test_qwen2_matches_transformers(self):
        self.check_table("qwen2")

    def test_qwen3_matches_transformers(self):
        self.check_table("qwen3")

    def test_reads_config_of_transformers_4(self):
        for rope in ROPES:
            for key in "type", "rope_type":
                with self.subTest(rope=rope, key=key), tempfile.TemporaryDirectory() as folder:
                    config = config_of("llama", rope, kv_heads=4)
                    model = make(config)
                    model.save_pretrained(folder)
                    old = config.to_dict()
                    scaling = old.pop("rope_parameters")
                    old["rope_theta"], old["torch_dtype"] = scaling.pop("rope_theta"), old.pop("dtype")
                    scaling[key] = scaling.pop("rope_type")
                    old["rope_scaling"] = None if rope == "default" else scaling
                    with open(os.path.join(folder, "config.json"), "w") as file:
                        json.dump(old, file)
                    self.check(folder, model)

    def test_transformers_loads_export(self):
        cases = [("llama", {"rope": "llama3", "bias": True, "head_dim": 10}), ("llama", {"tied": True}),
                 ("mistral", {"window": 5}), ("mistral", {"rope": "yarn"}), ("qwen2", {"window": "first layer"}),
                 ("qwen2", {"rope": "linear", "tied": True}), ("qwen3", {"window": "last layer", "head_dim": 6})]
        for kind, options in cases:
            with self.subTest(kind=kind, **options), tempfile.TemporaryDirectory() as outer:
                source, folder = os.path.join(outer, "source"), os.path.join(outer, "made")
                theirs = make(config_of(kind, **options))
                theirs.save_pretrained(source)
                answer = trace_folder(source, export=folder)
                loaded, report = transformers.AutoModelForCausalLM.from_pretrained(
                    folder, output_loading_info=True, attn_implementation="eager")
                self.assertFalse(any(report.values()), report)
                self.assertIs(type(loaded), type(theirs))
                with torch.no_grad():
                    self.assertTrue(torch.equal(loaded.eval()(TOKENS).logits, theirs.eval()(TOKENS).logits))
                self.assertEqual(loaded.config.eos_token_id, [3, 4])
                self.assertEqual(trace_folder(folder)["logits"], answer["logits"])

    def test_training_exports_same_bytes(self):
        """A step with learning rate 0 leaves the weights unchanged. An export contains the fp32 weights of the
        optimizer."""
        sharded = {"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 10}}
        staged = {"pipeline": {"stages": 2}, "zero_optimization": {"stage": 1}}
        for kind, dtype, layout, ranks in (("llama", torch.bfloat16, sharded, 2), ("qwen3", torch.float32, staged, 2),
                                           ("qwen2", torch.bfloat16, {}, 1)):
            with self.subTest(kind=kind, layout=layout), tempfile.TemporaryDirectory() as outer:
                source, folder, text = (os.path.join(outer, name) for name in ("source", "made", "text"))
                make(config_of(kind, tied=kind == "qwen2", vocab_size=256)).to(dtype).save_pretrained(source)
                write_text(text, 40 * LENGTH)
                with open(os.path.join(source, "config.json")) as file:
                    section = trace(config=json.load(file), input_shape=[LENGTH], seed=3, tokens=TOKENS.tolist(),
                                    targets=TARGETS.flatten().tolist())["section"]
                engine = {"train_batch_size": 4, "bf16": {"enabled": dtype == torch.bfloat16},
                          "optimizer": {"type": "AdamW", "params": {"lr": 0}}, **layout}
                if "pipeline" in layout:
                    engine["gradient_accumulation_steps"] = 2
                recipe = {"model": section, "data": {"type": "text", "path": text, "block_size": LENGTH},
                          "run": {"steps": 1, "init_weights": source, "export_hf": folder}, "engine": engine}
                for rank in run(recipe, ranks):
                    self.assertEqual((rank.code, rank.err), (0, ""))
                ours, theirs = (safetensors.torch.load_file(os.path.join(name, "model.safetensors"))
                                for name in (folder, source))
                self.assertEqual(set(ours), set(theirs))
                for name, tensor in theirs.items():
                    self.assertTrue(torch.equal(ours[name].to(dtype).view(torch.uint8), tensor.view(torch.uint8)), name)

    def test_rejects_weights_that_compute_something_else(self):
        with tempfile.TemporaryDirectory() as folder:
            make(config_of("qwen3", tied=True)).save_pretrained(folder)
            with open(os.path.join(folder, "config.json")) as file:
                config = json.load(file)
            for changes, words in (({"num_attention_heads": 2, "head_dim": 256}, "num_attention_heads is 4; model."),
                                   ({"rms_norm_eps": 1e-5}, "rms_norm_eps is 1e-06; model.rms_norm_eps is 1e-05"),
                                   ({"rope_parameters": {"rope_theta": 7}}, "rope_parameters is "),
                                   ({"tie_word_embeddings": False}, "tie_word_embeddings is true; model.tie_word"),
                                   ({"hidden_size": 64}, "is F32 [61, 32] where the model has F32 [61, 64]"),
                                   ({"model_type": "llama"}, 'model_type is "qwen3"; model.model_type is "llama"')):
                with self.subTest(changes=changes):
                    self.assertIn(words, trace_folder(folder, {**config, **changes})["error"])


if __name__ == "__main__":
    unittest.main()
