"""Tests that models that are divided over tensor-parallel ranks compute the same as transformers."""

import os
import tempfile
import unittest

import safetensors.torch
import torch
import transformers

from decoder_test import config_of, make
from models_test import trace
from table import all_cells, pairwise_cells

LENGTH, VOCABULARY = 16, 131  # 131 needs padding in 2 and in 4 parts
TOKENS = torch.randint(0, VOCABULARY, (3, LENGTH), generator=torch.Generator().manual_seed(5))
TARGETS = torch.randint(0, VOCABULARY, (3, LENGTH), generator=torch.Generator().manual_seed(6))
TARGETS[1, :4] = -100
MODELS = {
    "llama": ("llama", {}),
    "llama, tied, with biases": ("llama", {"tied": True, "bias": True, "rope": "llama3"}),
    "llama, as many k/v heads": ("llama", {"kv_heads": 4}),
    "llama, one k/v head": ("llama", {"kv_heads": 1, "vocab_size": 132}),
    "mistral, window": ("mistral", {"window": 5}),
    "qwen2": ("qwen2", {"window": "last layer"}),
    "qwen3": ("qwen3", {"head_dim": 6}),
    "qwen3, tied, as many k/v heads": ("qwen3", {"tied": True, "kv_heads": 4, "bias": True}),
    "gpt2": ("gpt2", {}),
    "gpt2, wide, few words": ("gpt2", {"n_inner": 40, "vocab_size": 135}),
}
FACTORS = {"model": tuple(MODELS), "parts": (1, 2, 4), "sequence_parallel": (False, True), "recompute": (False, True)}


def config(name):
    kind, options = MODELS[name]
    if kind != "gpt2":
        return config_of(kind, **{"vocab_size": VOCABULARY, **options})
    return transformers.GPT2Config(**{
        "vocab_size": VOCABULARY, "n_positions": LENGTH, "n_embd": 24, "n_layer": 2, "n_head": 4, "resid_pdrop": 0,
        "embd_pdrop": 0, "attn_pdrop": 0, "bos_token_id": None, "eos_token_id": None, **options})


class TensorParallelTest(unittest.TestCase):
    def check(self, model, folder, parts, sequence_parallel, recompute):
        grads = os.path.join(folder, "gradients")
        section = model.config.to_dict()
        answer = trace(config=section, input_shape=[LENGTH], seed=3, weights=folder, tokens=TOKENS.tolist(),
                       targets=TARGETS.flatten().tolist(), gradients=grads, parts=parts,
                       sequence_parallel=sequence_parallel, recompute=recompute)
        self.assertNotIn("error", answer)
        self.assertEqual(answer["problems"], [])
        out = model(TOKENS).logits
        self.assertLess((torch.tensor(answer["logits"]) - out.flatten()).abs().max().item(), 1e-5)
        loss = torch.nn.functional.cross_entropy(out.flatten(0, 1), TARGETS.flatten())
        model.zero_grad()
        loss.backward()
        self.assertLess(abs(answer["loss"] - loss.item()), 1e-6 * loss.item())
        ours = safetensors.torch.load_file(os.path.join(grads, "model.safetensors"))
        theirs = {name: parameter.grad for name, parameter in model.named_parameters()}
        self.assertEqual(set(ours), set(theirs))
        deviations = {name: (ours[name] - grad).abs().max().item() / grad.abs().max().item()
                      for name, grad in theirs.items()}
        worst = max(deviations, key=deviations.get)
        self.assertLess(deviations[worst], 1e-5, worst)
        return deviations[worst]

    def test_matches_transformers(self):
        full = os.environ.get("DSLAUNCH_TEST_FULL") == "1"
        worst = 0
        for cell in (all_cells if full else pairwise_cells)(FACTORS):
            with self.subTest(**cell), tempfile.TemporaryDirectory() as folder:
                model = make(config(cell.pop("model")))
                model.save_pretrained(folder)
                worst = max(worst, self.check(model, folder, **cell))
        print("largest deviation of a gradient: %.1e" % worst, flush=True)

    def test_rejects_sequences_that_ranks_do_not_divide(self):
        model = make(config("llama"))
        answer = trace(config=model.config.to_dict(), input_shape=[15], seed=3, tokens=TOKENS[:, :15].tolist(),
                       targets=TARGETS[:, :15].flatten().tolist(), parts=2, sequence_parallel=True)
        self.assertIn("15 tokens, which is not a multiple of the 2 ranks", answer["error"])
