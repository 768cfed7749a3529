"""Tests that with data.documents, tokens attend only to their own document and positions start anew in it, as if it
were alone."""

import json
import os
import random
import sys
import tempfile
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import safetensors.torch
import torch
import transformers

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from decoder_test import config_of, make  # noqa: E402
from models_test import trace  # noqa: E402
from spawn import run  # noqa: E402

LENGTH, VOCABULARY, END = 24, 61, 3
NO_TARGET = -100
CASES = {
    "llama, grouped heads": ("llama", {"rope": "llama3", "kv_heads": 2}),
    "llama, all heads": ("llama", {"rope": "yarn", "kv_heads": 4, "tied": True}),
    "mistral with a window": ("mistral", {"window": 5}),
    "qwen3 with a window in a layer": ("qwen3", {"window": "last layer"}),
    "gpt2": ("gpt2", {}),
}


def model_of(kind, options):
    if kind != "gpt2":
        return make(config_of(kind, **options))
    config = transformers.GPT2Config(vocab_size=VOCABULARY, n_positions=64, n_embd=32, n_layer=2, n_head=4,
                                     resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, bos_token_id=None, eos_token_id=END)
    torch.manual_seed(9)
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")


def packed_row(rng):
    """Returns LENGTH + 1 tokens of documents that each end with END. The last document may be cut."""
    tokens = []
    while len(tokens) <= LENGTH:
        tokens += [rng.choice([t for t in range(VOCABULARY) if t != END]) for _ in range(rng.randrange(12))] + [END]
    return tokens[:LENGTH + 1]


def cut(row):
    """Returns (begin, end) of each document in the inputs of a row."""
    begins = [0] + [i + 1 for i in range(LENGTH - 1) if row[i] == END]
    return list(zip(begins, begins[1:] + [LENGTH]))


def targets_of(row):
    return [NO_TARGET if row[i] == END else row[i + 1] for i in range(LENGTH)]


def marked(row):
    begins = {begin for begin, _ in cut(row)} - {0}
    return [-1 - token if i in begins else token for i, token in enumerate(row[:LENGTH])]


def logits_alone(model, rows):
    """Returns the logits of each document computed alone, concatenated again."""
    return torch.stack([torch.cat([model(torch.tensor([row[begin:end]])).logits[0] for begin, end in cut(row)])
                        for row in rows])


class DocumentsTest(unittest.TestCase):
    def test_logits_and_gradients_match_documents_alone(self):
        seed = int(os.environ.get("TEST_SEED", random.randrange(1 << 31)))
        for name, (kind, options) in CASES.items():
            with self.subTest(name, seed=seed), tempfile.TemporaryDirectory() as folder:
                rng = random.Random(seed)
                rows = [packed_row(rng) for _ in range(3)]
                model = model_of(kind, options)
                model.save_pretrained(folder)
                with open(os.path.join(folder, "config.json")) as file:
                    config = json.load(file)
                grads = os.path.join(folder, "gradients")
                targets = torch.tensor([targets_of(row) for row in rows])
                answer = trace(config=config, input_shape=[LENGTH], seed=3, weights=folder, documents=True,
                               gradients=grads, tokens=[marked(row) for row in rows],
                               targets=targets.flatten().tolist())
                self.assertNotIn("error", answer)
                out = logits_alone(model, rows)
                self.assertLess((torch.tensor(answer["logits"]) - out.flatten()).abs().max().item(), 1e-5)
                loss = torch.nn.functional.cross_entropy(out.flatten(0, 1), targets.flatten())
                loss.backward()
                self.assertLess(abs(answer["loss"] - loss.item()), 1e-5)
                ours = safetensors.torch.load_file(os.path.join(grads, "model.safetensors"))
                theirs = {key.removeprefix("transformer." if kind == "gpt2" else ""): parameter.grad
                          for key, parameter in model.named_parameters()}
                for key, grad in theirs.items():
                    found = ours.get(key, ours.get("transformer." + key))
                    self.assertLess((found - grad).abs().max().item(), 1e-5, key)

    def test_training_matches_documents_alone(self):
        """Compares the losses of 3 steps, at each ZeRO stage, with accumulation and recomputation."""
        layouts = {
            "one rank": ({}, 1),
            "ZeRO 1": ({"zero_optimization": {"stage": 1}}, 2),
            "ZeRO 2, accumulation": ({"zero_optimization": {"stage": 2}, "gradient_accumulation_steps": 2}, 2),
            "ZeRO 3, recomputation": ({"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 10},
                                       "activation_checkpointing": {"number_checkpoints": 2}}, 2),
        }
        for kind, options in (("llama", {}), ("gpt2", {})):
            with tempfile.TemporaryDirectory() as folder:
                source, path = os.path.join(folder, "source"), os.path.join(folder, "tokens.bin")
                model = model_of(kind, {**options, "eos_token_id": END} if kind == "llama" else {})
                model.save_pretrained(source)
                rng = random.Random(4)
                stream = sum((packed_row(rng)[:LENGTH] for _ in range(12)), []) + [END]
                np.array(stream, dtype=np.uint16).tofile(path)
                rows = [stream[i * LENGTH:(i + 1) * LENGTH + 1] for i in range(12)]
                expected = self.losses(model, rows)
                with open(os.path.join(source, "config.json")) as file:
                    section = trace(config=json.load(file), input_shape=[LENGTH], seed=3, tokens=[rows[0][:LENGTH]],
                                    targets=targets_of(rows[0]))["section"]
                for name, (layout, ranks) in layouts.items():
                    with self.subTest(kind=kind, layout=name):
                        data = {"type": "tokens", "path": path, "block_size": LENGTH, "shuffle": False,
                                "documents": True}
                        if kind == "gpt2":
                            data["eos_token_id"] = END
                        recipe = {"model": section, "data": data,
                                  "run": {"steps": 3, "init_weights": source, "loss_normalization": "tokens",
                                          "metrics_jsonl": os.path.join(folder, name)},
                                  "engine": {"train_batch_size": 4, "gradient_clipping": 0.0,
                                             "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
                                             **layout}}
                        for rank in run(recipe, ranks):
                            self.assertEqual((rank.code, rank.err), (0, ""))
                        with open(os.path.join(folder, name)) as file:
                            losses = [step["loss"] for step in map(json.loads, file) if "loss" in step][:3]
                        self.assertEqual(len(losses), 3)
                        for ours, theirs in zip(losses, expected):
                            self.assertAlmostEqual(ours, theirs, delta=1e-5)

    @staticmethod
    def losses(model, rows):
        """Trains with SGD on 4 rows per step; returns the losses."""
        losses = []
        for step in range(3):
            batch = rows[step * 4:step * 4 + 4]
            targets = torch.tensor([targets_of(row) for row in batch])
            loss = torch.nn.functional.cross_entropy(logits_alone(model, batch).flatten(0, 1), targets.flatten())
            model.zero_grad()
            loss.backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.1 * parameter.grad
            losses.append(loss.item())
        return losses

    def test_rejects_models_and_layouts_without_documents(self):
        gpt2 = {"type": "gpt2", "vocab_size": 300, "n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2}
        data = {"type": "tokens", "path": "x", "documents": True, "eos_token_id": 3}
        engine = {"train_batch_size": 4, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}}
        pipeline = {**engine, "pipeline": {"stages": 2}, "gradient_accumulation_steps": 2}
        for model, given, config, words in (
                (gpt2, data, pipeline, "data.documents needs all layers on one rank"),
                (gpt2, {**data, "eos_token_id": None}, engine, "data.eos_token_id is missing"),
                (gpt2, {**data, "type": "text"}, engine, "data.documents")):
            with self.subTest(words):
                for rank in run({"model": model, "data": given, "run": {"steps": 1}, "engine": config}, 2):
                    self.assertEqual(rank.code, 65)
                    self.assertIn(words, rank.err)


if __name__ == "__main__":
    unittest.main()
