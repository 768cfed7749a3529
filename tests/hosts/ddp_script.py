"""Trains as a user's script for torchrun that uses plain torch.distributed, without dslaunch."""

import os
import socket

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    hosts = [None] * world
    dist.all_gather_object(hosts, socket.gethostname())

    layers = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    model = DistributedDataParallel(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    generator = torch.Generator().manual_seed(1000 + rank)
    first = last = None
    for _ in range(60):
        x = torch.randn(64, 8, generator=generator)
        loss = ((model(x) - x.sum(dim=1, keepdim=True).sin()) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        last = mean.item() / world
        first = first if first is not None else last

    flat = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    sums = [None] * world
    dist.all_gather_object(sums, flat.double().sum().item())
    if rank == 0:
        print(f"world {world} hosts {sorted(set(hosts))} same weights {len(set(sums)) == 1} "
              f"loss fell {last < first} local rank {os.environ['LOCAL_RANK']}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    os._exit(0)  # skips interpreter exit, during which PyTorch's threads sometimes abort
