"""Trains as a user's script for DeepSpeed or torchrun, without dslaunch. Writes its environment and arguments to
OUT/rank.N.json."""

import argparse
import json
import os
import pathlib
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    parser.add_argument("--out", required=True)
    parser.add_argument("--note")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(rank)
    losses = []
    for _ in range(20):
        x = torch.randn(32, 4, generator=generator)
        loss = ((model(x) - x.sum(dim=1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    sums = [None] * world
    dist.all_gather_object(sums, sum(parameter.double().sum().item() for parameter in model.parameters()))
    report = {"env": dict(os.environ), "argv": sys.argv[1:], "local_rank": arguments.local_rank,
              "note": arguments.note, "cwd": os.getcwd(), "host": os.uname().nodename, "world": world,
              "interpreter": sys.executable, "same_weights": len(set(sums)) == 1, "learnt": losses[-1] < losses[0]}
    (pathlib.Path(arguments.out) / f"rank.{rank}.json").write_text(json.dumps(report))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    os._exit(0)  # skips interpreter exit, during which PyTorch's threads sometimes abort
