"""Computes what a rank holds and sends at each stage of ZeRO: as measured, and by the paper (Rajbhandari et al.,
"ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", sections 5 and 7)."""

import os
import random

import spawn

MODEL_BYTES = 2  # bytes per element, with bf16
# K in the paper: the bytes that AdamW keeps per parameter, for its fp32 weight, momentum and variance.
OPTIMIZER_BYTES = 12
GRADIENT_BYTES = {"bf16": 2, "fp32": 4}  # keys: data_types.grad_accum_dtype
# Number of elements to which the ranks' parts of sharded tensors are rounded up. Tensors that are sharded together have
# at least one parameter.
ALIGNMENT = 16
STATES = ("parameters", "gradients", "optimizer")  # names in the metrics
BLOCK = 32  # tokens per sample


def gpt(width=256, layers=4, positions=BLOCK):
    return {"type": "gpt2", "n_layer": layers, "n_embd": width, "n_head": 8, "n_positions": positions, "vocab_size": 256,
            "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}


def elements(model):
    """Returns (number of parameters, number of tensors)."""
    width, layers = model["n_embd"], model["n_layer"]
    block = 12 * width ** 2 + 13 * width  # weights: qkv 3, output 1, MLP 4 + 4; biases 9, two layer norms 4
    return (model["vocab_size"] + model["n_positions"] + 2) * width + layers * block, 4 + 12 * layers


def write_text(file, bytes=1 << 16):
    with open(file, "wb") as out:
        out.write(random.Random(1).randbytes(bytes))


def recipe(model, text, stage, ranks, accumulation="bf16", steps=2):
    """Returns a recipe. Buckets are at most a twentieth of the model, because larger buckets would hide the savings
    of sharding. Nothing that stage 3 gathers is kept for later."""
    bucket = elements(model)[0] // 20
    return {
        "model": model,
        "data": {"type": "text", "path": text, "block_size": BLOCK, "shuffle": False},
        "run": {"steps": steps, "seed": 1},
        "engine": {
            "train_batch_size": ranks, "gradient_clipping": 1.0, "bf16": {"enabled": True},
            "data_types": {"grad_accum_dtype": accumulation},
            "optimizer": {"type": "AdamW", "params": {"lr": 0.0003, "weight_decay": 0.01}},
            "zero_optimization": {
                "stage": stage, "reduce_bucket_size": bucket, "allgather_bucket_size": bucket,
                "stage3_prefetch_bucket_size": bucket, "stage3_param_persistence_threshold": 0,
                "stage3_max_live_parameters": bucket, "stage3_max_reuse_distance": 0}}}


def paper_states(model, stage, ranks, accumulation):
    """Returns {category: bytes of a rank} by section 5. With P parameters, N ranks and G bytes per gradient, these are
      (2 + G) P + K P / N,  2 P + (G + K) P / N,  (2 + G + K) P / N  at stages 1, 2, 3."""
    whole, part = elements(model)[0], elements(model)[0] / ranks
    return {"parameters": MODEL_BYTES * (part if stage >= 3 else whole),
            "gradients": GRADIENT_BYTES[accumulation] * (part if stage >= 2 else whole),
            "optimizer": OPTIMIZER_BYTES * (part if stage >= 1 else whole)}


def alignment(model, stage, ranks, accumulation):
    """Returns {category: bytes} that rounding up may add to paper_states."""
    rounded = elements(model)[1] * ALIGNMENT if stage else 0
    return {"parameters": MODEL_BYTES * rounded * (1 if stage >= 3 else ranks),
            "gradients": GRADIENT_BYTES[accumulation] * rounded * (1 if stage >= 2 else ranks),
            "optimizer": OPTIMIZER_BYTES * rounded}


def measured_memory(model, text, stage, ranks, accumulation):
    """Returns the metrics' "memory" of the second step: bytes of live tensors by category, as the maximum over all
    ranks.
    """
    _, steps = spawn.run_with_metrics(recipe(model, text, stage, ranks, accumulation), ranks)
    return steps[-1]["memory"]


def paper_sent(model, stage, ranks):
    """Returns the bytes that a rank sends in a step by section 7. Gradients are reduced to their owners, and
    parameters are gathered from them once, at stage 3 in both the forward and the backward pass. Each time, (N - 1)
    / N of the elements leave a rank."""
    return (3 if stage == 3 else 2) * elements(model)[0] * MODEL_BYTES * (ranks - 1) / ranks


def _written(whole_recipe, ranks):
    """Returns the bytes that each rank wrote to sockets and files during its life, as counted by Linux."""
    over_tcp = {rank: {"DSLAUNCH_SHM_DISABLE": "1"} for rank in range(ranks)}
    with spawn.Job(whole_recipe, ranks, env_of_rank=over_tcp) as job:
        job.wait_for(lambda: all(os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                                 for process in job.processes), 120, "all ranks ended")
        counts = []
        for process in job.processes:
            with open(f"/proc/{process.pid}/io") as lines:
                counts += [int(line.split()[1]) for line in lines if line.startswith("wchar:")]
        for rank in job.finish():
            assert rank.code == 0 and rank.err == "", (rank.code, rank.err)
    return counts


def measured_sent(model, text, stage, ranks):
    """Returns the bytes that each rank writes in a step, from the difference between runs of 6 and of 2 steps. The
    transport is Gloo's TCP, because bytes in shared memory would not be counted."""
    short, long = (_written(recipe(model, text, stage, ranks, steps=steps), ranks) for steps in (2, 6))
    return [(b - a) / 4 for a, b in zip(short, long)]
