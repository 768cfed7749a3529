"""Trains the model of tests/bench/train with the same weights, data and optimizer under PyTorch's
DistributedDataParallel, in the usual style.

  train_ddp.py prepare RECIPE         writes the data and the weights that RECIPE names
  train_ddp.py train RECIPE METRICS   trains; under torchrun one rank of several, else alone without a process group
"""

import json
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import gpt_training


def train(recipe, metrics_file):
    torch.set_num_threads(1)
    model = gpt_training.make_model(recipe)
    if gpt_training.place()[1] > 1:
        dist.init_process_group("gloo")
        model = DistributedDataParallel(model)
    engine = recipe["engine"]
    optimizer = torch.optim.AdamW(model.parameters(), **engine["optimizer"]["params"], fused=True)

    def step(inputs, targets):
        loss = gpt_training.loss_of(model(inputs), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), engine["gradient_clipping"])
        optimizer.step()
        optimizer.zero_grad()
        return loss

    gpt_training.train(recipe, metrics_file, step)


if __name__ == "__main__":
    with open(sys.argv[2]) as file:
        wanted = json.load(file)
    if sys.argv[1] == "prepare":
        gpt_training.prepare(wanted)
    else:
        train(wanted, sys.argv[3])
