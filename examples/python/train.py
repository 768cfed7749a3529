"""A training loop of PyTorch that tells dslaunch how it goes, and saves when it is asked to stop.

    dslaunch --launcher local --num_nodes 2 --num_gpus 2 examples/python/train.py --steps 2000 --checkpoint mlp.pt

Without dslaunch it is an ordinary program of one process.
"""

import argparse
import os

import dslaunch
import torch
import torch.distributed as dist


def stop_anywhere(distributed):
    """The same answer on all ranks, so that none waits for one that has left."""
    flag = torch.tensor(float(dslaunch.stop_requested()))
    if distributed:
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return bool(flag)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--checkpoint", default="mlp.pt")
    options = parser.parse_args()

    distributed = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if distributed:
        dist.init_process_group("gloo")
    rank = dist.get_rank() if distributed else 0
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    trained = torch.nn.parallel.DistributedDataParallel(model) if distributed else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    step = 0
    if os.path.exists(options.checkpoint):
        state = torch.load(options.checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        step = state["step"]
    print(f"rank {rank} begins after step {step}, attempt {job.attempt if (job := dslaunch.current_job()) else 1}", flush=True)

    reporter = dslaunch.Reporter()
    reporter.ready()
    stopped = False
    while step < options.steps and not (stopped := stop_anywhere(distributed)):
        inputs = torch.randn(64, 8, generator=torch.Generator().manual_seed(step * 1000 + rank))
        loss = (trained(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        reporter.step(step, total_steps=options.steps, loss=loss.item(), lr=0.05)

    if rank == 0:
        torch.save({"model": model.state_dict(), "step": step}, options.checkpoint + ".new")
        os.replace(options.checkpoint + ".new", options.checkpoint)
        if not stopped:
            reporter.evaluated(step, loss=loss.item())
    if distributed:
        dist.barrier()  # no rank ends before the checkpoint is whole
        dist.destroy_process_group()
    if stopped:
        dslaunch.exit_saved()


if __name__ == "__main__":
    main()
