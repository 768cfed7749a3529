"""PyTorch's half of tests/bench/train: the same model, weights, data and optimizer under DistributedDataParallel, written
as one would write it. Each optimizer step of rank 0 is one JSON object in the metrics file.

  train_ddp.py prepare RECIPE         writes the data and the weights that RECIPE names
  train_ddp.py train RECIPE METRICS   trains; under torchrun one rank of several, else alone without a process group
"""

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
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "trainer"))
from gpt2 import Gpt2  # noqa: E402


def prepare(recipe):
    samples = recipe["run"]["steps"] * recipe["engine"]["train_batch_size"]
    tokens = samples * recipe["model"]["n_positions"] + 1
    dice = numpy.random.default_rng(1)
    dice.integers(recipe["model"]["vocab_size"], size=tokens).astype("<u2").tofile(recipe["data"]["path"])
    torch.manual_seed(1)
    save_file(Gpt2(recipe["model"]).state_dict(), recipe["run"]["init_weights"])


def train(recipe, metrics_file):
    torch.set_num_threads(1)
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world > 1:
        dist.init_process_group("gloo")
    inner = Gpt2(recipe["model"])
    inner.load_state_dict(load_file(recipe["run"]["init_weights"]))
    model = DistributedDataParallel(inner) if world > 1 else inner
    engine = recipe["engine"]
    optimizer = torch.optim.AdamW(model.parameters(), **engine["optimizer"]["params"], fused=True)
    tokens = numpy.memmap(recipe["data"]["path"], "<u2", "r")
    block, batch = recipe["model"]["n_positions"], engine["train_batch_size"] // world
    before = time.perf_counter()
    for step in range(recipe["run"]["steps"]):
        starts = [(step * batch * world + sample * world + rank) * block for sample in range(batch)]
        rows = torch.from_numpy(numpy.stack([tokens[at:at + block + 1] for at in starts]).astype(numpy.int64))
        loss = cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), engine["gradient_clipping"])
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach()
        if world > 1:
            dist.all_reduce(mean)
        if rank == 0:
            now = time.perf_counter()
            with open(metrics_file, "a") as out:
                print(json.dumps({"step": step + 1, "loss": mean.item() / world, "step_s": now - before}), file=out)
            before = now
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    with open(sys.argv[2]) as file:
        wanted = json.load(file)
    if sys.argv[1] == "prepare":
        prepare(wanted)
    else:
        train(wanted, sys.argv[3])
        # Now and then PyTorch's own threads abort while the interpreter ends.
        sys.stdout.flush()
        os._exit(0)
