"""Runs the program of tests/bench/memory_checkpoint: a small torch loop that saves its state every EVERY steps and
continues from it.

Arguments: FOLDER, EVERY and `disk` or `memory`. Each rank appends "TIME ATTEMPT STEP SAVE_S" to FOLDER/steps.RANK.
"""

import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist

folder, every, source = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
rank = int(os.environ["RANK"])
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"]) + 1
torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 256))
optimizer = torch.optim.Adam(model.parameters())
checkpoint = folder / f"checkpoint.{rank}.pt"
step, state = 0, None
if source == "memory":
    import dslaunch
    reporter = dslaunch.Reporter()
    copy = reporter.load_from_memory()
    state = copy.state if copy else None
elif checkpoint.exists():
    state = torch.load(checkpoint)
if state:
    step = state["step"]
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
parallel = torch.nn.parallel.DistributedDataParallel(model)
dist.barrier()
with open(folder / f"steps.{rank}", "a", buffering=1) as lines:
    while not (folder / "end").exists():
        loss = parallel(torch.randn(32, 256)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        begun = time.perf_counter()
        if step % every == 0:
            state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
            if source == "memory":
                reporter.save_in_memory(step, state)
            else:
                torch.save(state, checkpoint.with_suffix(".new"))
                dist.barrier()
                os.replace(checkpoint.with_suffix(".new"), checkpoint)
        lines.write(f"{time.time()} {attempt} {step} {time.perf_counter() - begun}\n")
        # A rank that ends alone would count as a failure, so all ranks check at the same time.
        dist.barrier()
