"""Contains the code shared by PyTorch's parts of tests/bench/train, tests/bench/zero and tests/bench/pipeline: the
model, its weights and data, the loss, and the metrics file, in which each optimizer step of rank 0 is one JSON
object."""

import json
import os
import pathlib
import sys
import time

import numpy
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "trainer"))
from gpt2 import Gpt2  # noqa: E402
from llama import Llama  # noqa: E402


def prepare(recipe):
    """Writes the data and, if `recipe` names them, the weights."""
    samples = recipe["run"]["steps"] * recipe["engine"]["train_batch_size"]
    tokens = samples * recipe["data"]["block_size"] + 1
    dice = numpy.random.default_rng(1)
    dice.integers(min(recipe["model"]["vocab_size"], 2**16), size=tokens).astype("<u2").tofile(recipe["data"]["path"])
    if "init_weights" in recipe["run"]:
        torch.manual_seed(1)
        save_file(new_model(recipe["model"], Llama).state_dict(), recipe["run"]["init_weights"])


def place():
    """Returns (rank, number of ranks). Without a launcher there is only one rank."""
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


class TransformersLlama(torch.nn.Module):
    """Hugging Face's Llama, wrapped so that it returns only its logits."""

    def __init__(self, section):
        super().__init__()
        from transformers import LlamaConfig, LlamaForCausalLM  # inside the function, because the import takes seconds
        keys = {key: value for key, value in section.items() if key not in ("type", "model_type")}
        # The head is the embedding, which is stored only once.
        self.whole = LlamaForCausalLM(LlamaConfig(**keys, attn_implementation="sdpa"))

    def state_dict(self, *args, **kwargs):
        return {name: value for name, value in self.whole.state_dict(*args, **kwargs).items() if name != "lm_head.weight"}

    def load_state_dict(self, state_dict):
        self.whole.load_state_dict({**state_dict, "lm_head.weight": state_dict["model.embed_tokens.weight"]})

    def forward(self, tokens):
        return self.whole(tokens, use_cache=False).logits


def new_model(section, llama):
    return llama(section) if section["type"] == "decoder" else Gpt2(section)


def blocks_of(model):
    return model.whole.model.layers if isinstance(model, TransformersLlama) else model.transformer["h"]


def make_model(recipe, llama=TransformersLlama):
    """Returns the model with the weights that `recipe` names. A decoder has the class `llama`."""
    model = new_model(recipe["model"], llama)
    model.load_state_dict(load_file(recipe["run"]["init_weights"]))
    return model


def loss_of(logits, targets):
    return cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def train(recipe, metrics_file, step, replica=None):
    """Calls `step` for each batch. It makes one optimizer step for inputs and targets [batch, time] and returns
    their loss. `replica`: (index of this rank's replica, number of replicas), each with its own samples; place() by
    default."""
    rank, world = replica or place()
    tokens = numpy.memmap(recipe["data"]["path"], "<u2", "r")
    block, batch = recipe["data"]["block_size"], recipe["engine"]["train_batch_size"] // world
    before = time.perf_counter()
    for number in range(recipe["run"]["steps"]):
        starts = [(number * batch * world + sample * world + rank) * block for sample in range(batch)]
        rows = torch.from_numpy(numpy.stack([tokens[at:at + block + 1] for at in starts]).astype(numpy.int64))
        mean = step(rows[:, :-1], rows[:, 1:]).detach()
        if world > 1:
            dist.all_reduce(mean)
        if place()[0] == 0:
            now = time.perf_counter()
            with open(metrics_file, "a") as out:
                print(json.dumps({"step": number + 1, "loss": mean.item() / world, "step_s": now - before}), file=out)
            before = now
    if dist.is_initialized():
        dist.destroy_process_group()
    # Interpreter exit is skipped, because PyTorch's own threads sometimes abort during it.
    sys.stdout.flush()
    os._exit(0)
