"""Makes DeepSpeed resume from universal checkpoints, for each case on standard input, one JSON object per line:

  {"folder": ..., "world": 2, "stage": 1, "recipe": {...}, "text": ..., "from": 3, "to": 6}

The recipe describes a GPT-2; DeepSpeed gets its model and its engine's configuration. Prints for each case a line of
JSON: {"losses": means over the ranks, "rates": ..., "steps": engine.global_steps after loading, "client": ...}.
Run it with DeepSpeed's Python. The ranks are forked, because importing DeepSpeed takes longer than all cases."""

import contextlib
import io
import json
import os
import sys
import tempfile
import traceback

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import write_deepspeed  # noqa: F401  (prepares DeepSpeed for the CPU)
import deepspeed
import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from gpt2 import Gpt2  # noqa: E402


def configuration(case):
    engine = case["recipe"]["engine"]
    optimizer = {"type": engine["optimizer"]["type"], "params": {**engine["optimizer"]["params"], "torch_adam": True}}
    return {**engine, "optimizer": optimizer, "zero_force_ds_cpu_optimizer": False, "steps_per_print": 10**9,
            "zero_optimization": {"stage": case["stage"], "stage3_param_persistence_threshold": 0},
            "checkpoint": {"load_universal": True}}


def resume(case, rank, world):
    model = case["recipe"]["model"]
    torch.manual_seed(999 + rank)  # so that no initial value can match by chance
    module = Gpt2(model)
    engine, *_ = deepspeed.initialize(model=module, model_parameters=module.parameters(), config=configuration(case))
    _, client = engine.load_checkpoint(case["folder"])
    found = {"steps": engine.global_steps, "client": {key: text for key, text in client.items() if key == "note"},
             "losses": [], "rates": []}
    block, batch = model["n_positions"], case["recipe"]["engine"]["train_batch_size"]
    with open(case["text"], "rb") as file:
        tokens = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).long()
    for step in range(case["from"], case["to"]):
        samples = range(step * batch + rank, (step + 1) * batch, world)
        inputs = torch.stack([tokens[s * block:(s + 1) * block] for s in samples])
        targets = torch.stack([tokens[s * block + 1:(s + 1) * block + 1] for s in samples])
        logits = engine(inputs)
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, -2), targets.flatten())
        mean = loss.detach().double() / world
        torch.distributed.all_reduce(mean)
        found["losses"].append(mean.item())
        found["rates"].append(engine.get_lr()[0])
        engine.backward(loss)
        engine.step()
    engine.destroy()
    return found


def rank_main(rank, world, cases, meeting, results):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world))
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=world)
    deepspeed.init_distributed("gloo", verbose=False)
    for case in cases:
        quiet = io.StringIO()
        try:
            with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
                found = resume(case, rank, world)
        except BaseException:
            sys.stderr.write(f"{quiet.getvalue()[-3000:]}\nrank {rank} of {json.dumps(case)}\n")
            raise
        if rank == 0:
            with open(results, "a") as file:
                file.write(json.dumps({"number": case["number"], **found}) + "\n")
        torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def fork(rank, world, cases, folder):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            rank_main(rank, world, cases, os.path.join(folder, f"meeting-{world}"), os.path.join(folder, "results"))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return child


def main():
    cases = [{"number": number, **json.loads(line)} for number, line in enumerate(sys.stdin)]
    with tempfile.TemporaryDirectory() as folder:
        for world in sorted({case["world"] for case in cases}):
            children = [fork(rank, world, [case for case in cases if case["world"] == world], folder)
                        for rank in range(world)]
            # If a rank fails, its connections end, and so do the ranks that wait for it.
            if any(os.waitpid(child, 0)[1] != 0 for child in children):
                sys.exit(1)
        with open(os.path.join(folder, "results")) as file:
            for found in sorted(map(json.loads, file), key=lambda found: found["number"]):
                print(json.dumps(found))


if __name__ == "__main__":
    main()
