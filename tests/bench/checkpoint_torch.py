"""Saves or loads the tensors of tests/bench/checkpoint with PyTorch, and prints the seconds that this took.

  checkpoint_torch.py torch|torch-synced|dcp|dcp-unsynced save|load FOLDER MIB      alone or under torchrun

All ranks hold the same tensors. torch.save runs on rank 0, torch.load on all ranks. torch.distributed.checkpoint
divides the tensors among the ranks. It waits until the files are on the disk; `dcp-unsynced` turns this off."""

import os
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

TENSOR_ELEMENTS = 1 << 20


def sync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def torch_save(state, folder, rank, synced):
    file = os.path.join(folder, "state.pt")
    if rank == 0:
        torch.save(state, file)
        if synced:
            sync(file)
            sync(folder)


def main():
    kind, direction, folder, mib = sys.argv[1:]
    torch.set_num_threads(1)
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world > 1:
        dist.init_process_group("gloo")
    count = int(mib) * (1 << 20) // (4 * TENSOR_ELEMENTS)
    torch.manual_seed(1)
    state = {"layer.%d.weight" % i: torch.randn(TENSOR_ELEMENTS) for i in range(count)}
    synced = not kind.endswith("unsynced")
    os.makedirs(folder, exist_ok=True)

    def work(where, tensors):
        if kind.startswith("dcp"):
            if direction == "save":
                dcp.save(tensors, storage_writer=dcp.FileSystemWriter(where, sync_files=synced), no_dist=world == 1)
            else:
                dcp.load(tensors, storage_reader=dcp.FileSystemReader(where), no_dist=world == 1)
        elif direction == "save":
            torch_save(tensors, where, rank, kind == "torch-synced")
        else:
            loaded = torch.load(os.path.join(where, "state.pt"), weights_only=True)
            for name, tensor in tensors.items():
                tensor.copy_(loaded[name])

    if direction == "save":  # warms up, because the first call is slower
        warm_up = os.path.join(folder, "warm-up")
        os.makedirs(warm_up, exist_ok=True)
        work(warm_up, {"a": torch.zeros(1)})
    for _ in range(2 if world > 1 else 0):
        dist.barrier()
    begin = time.perf_counter()
    work(folder, state)
    if world > 1:
        dist.barrier()
    if rank == 0:
        print("%.6f" % (time.perf_counter() - begin))
    sys.stdout.flush()
    os._exit(0)  # skips interpreter exit, during which PyTorch's threads sometimes abort


if __name__ == "__main__":
    main()
