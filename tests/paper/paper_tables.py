"""Recomputes and measures tables of papers with dslaunch.
Each function returns rows. tests/paper/tables writes a page of them, and tables_test.py checks the fast ones."""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "tests" / "trainer")]
from launcher_case import BUILD, TRAIN  # noqa: E402

os.environ["DSLAUNCH_TRAIN"] = TRAIN
import spawn  # noqa: E402
import zero_measure  # noqa: E402

ONE_RANK = BUILD / "tests" / "dslaunch-one-rank"
STACK_MODEL = BUILD / "tests" / "libdslaunch-stack-model.so"

# ZERO_TABLE_1 is table 1 of ZeRO (Rajbhandari et al., SC 2020): {parameters: {ranks: GB of a rank with P_os, P_os+g,
# P_os+g+p}}. A value is None if unknown, because the whole paper was not available.
ZERO_TABLE_1 = {
    7.5e9: {1: ("120", "120", "120"), 4: ("52.5", "41.3", "30"), 16: ("35.6", "21.6", "7.5"), 64: ("31.4", "16.6", "1.88"),
            256: (None, None, None), 1024: ("30.1", "15.1", "0.12")},
    128e9: {1: (None,) * 3, 4: (None,) * 3, 16: (None,) * 3, 64: ("536", "284", "32"), 256: (None,) * 3, 1024: (None,) * 3},
    1e12: {1: (None,) * 3, 4: (None,) * 3, 16: (None,) * 3, 64: (None,) * 3, 256: (None,) * 3,
           1024: ("4012", "2014", "15.6")},
}
# Each model is (layers, width, heads). The vocabulary provides the other parameters.
ZERO_MODELS = {7.5e9: (36, 4096, 32), 128e9: (70, 12288, 96), 1e12: (127, 25600, 160)}
POSITIONS = 1024

# GPIPE_TABLE_2 is table 2 of GPipe (Huang et al., NeurIPS 2019) for the Transformer: {micro-batches: throughput with 2,
# 4, 8 stages relative to 2 stages and one micro-batch}. The values are from memory, because the paper was not
# available.
GPIPE_TABLE_2 = {1: (1.0, 1.07, 1.3), 4: (1.7, 3.2, 4.8), 32: (1.8, 3.4, 6.3)}


class Failed(Exception):
    pass


def _train(recipe):
    ended = subprocess.run([TRAIN, recipe], env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
                           stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
    if ended.returncode != 0:
        raise Failed(ended.stderr)
    return ended.stdout


def plan(recipe, ranks):
    """Returns the JSON of --plan_memory --ranks N."""
    with tempfile.TemporaryDirectory() as folder:
        out, file = os.path.join(folder, "plan.jsonl"), os.path.join(folder, "recipe.json")
        run = {"seed": 1, "mode": "plan_memory", "ranks": ranks, "metrics_jsonl": out}
        with open(file, "w") as text:
            json.dump(dict(recipe, run=run), text)
        _train(file)
        with open(out) as lines:
            return [json.loads(line)["plan"] for line in lines][0]


def zero_recipe(parameters, stage, text):
    layers, width, heads = ZERO_MODELS[parameters]
    rest = parameters - layers * (12 * width ** 2 + 13 * width)
    model = {"type": "gpt2", "n_layer": layers, "n_embd": width, "n_head": heads, "n_positions": POSITIONS,
             "vocab_size": round(rest / width) - POSITIONS - 2}
    return {"model": model, "data": {"type": "text", "path": text, "block_size": POSITIONS},
            "engine": {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True},
                       "data_types": {"grad_accum_dtype": "bf16"}, "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
                       "activation_checkpointing": {"number_checkpoints": layers},
                       "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0}}}


def states(planned):
    return sum(planned[key] for key in ("parameters", "gradients", "optimizer", "master_weights"))


def zero_table_1(text, cells=None):
    """Yields (parameters, ranks, stage, planned GB, the paper's text or None). `cells` contains the wanted
    (parameters, ranks, stage), or is None for all."""
    for parameters, rows in ZERO_TABLE_1.items():
        for ranks, texts in rows.items():
            for stage in (1, 2, 3):
                if cells is None or (parameters, ranks, stage) in cells:
                    planned = plan(zero_recipe(parameters, stage, text), ranks)
                    yield parameters, ranks, stage, states(planned) / 1e9, texts[stage - 1]


def agrees(planned, text):
    """Returns whether a number agrees with the paper up to the paper's last digit."""
    digits = len(text.partition(".")[2])
    return abs(planned - float(text)) <= 0.5001 * 10 ** -digits * (1 + 1e-9) or f"{planned:.{digits}f}" == text


def measured_peak(text, stage, ranks, samples=1, accumulation="bf16"):
    """Returns (planned bytes, maximum bytes of all tensors of a rank) for the largest rank."""
    recipe = zero_measure.recipe(zero_measure.gpt(), text, stage, ranks, accumulation, steps=3)
    recipe["engine"].update({"train_batch_size": ranks * samples, "memory_breakdown": True})
    _, steps = spawn.run_with_metrics(recipe, ranks)
    return plan(recipe, ranks)["together"], steps[-1]["memory"]["tensors"]


def stack_recipe(text, stage, ranks, width, inner, depth):
    """Returns a model of `depth` residual blocks, which is small enough for a step of one rank of many on this
    machine."""
    return {"model": {"type": "plugin", "path": str(STACK_MODEL), "params": {"width": width, "inner": inner, "depth": depth}},
            "data": {"type": "text", "path": text, "block_size": 1, "shuffle": False},
            "run": {"steps": 1, "seed": 1, "device": "cpu"},
            "engine": {"train_batch_size": ranks, "gradient_clipping": 1.0, "bf16": {"enabled": True},
                       "data_types": {"grad_accum_dtype": "bf16"},
                       "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
                       "zero_optimization": {"stage": stage, "overlap_comm": False, "stage3_param_persistence_threshold": 0,
                                             "reduce_bucket_size": 2 * width * inner, "allgather_bucket_size": 2 * width * inner,
                                             "stage3_prefetch_bucket_size": 0, "stage3_max_live_parameters": 0,
                                             "stage3_max_reuse_distance": 0}}}


def stack_parameters(width, inner, depth):
    return 2 * 256 * width + 2 * width * inner * depth


def one_rank(*arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"), "CUDA_VISIBLE_DEVICES": ""}
    ended = subprocess.run([ONE_RANK, *map(str, arguments)], env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                           text=True, timeout=3600)
    if ended.returncode != 0:
        raise Failed(ended.stderr + str(ended.returncode))
    return json.loads(ended.stdout)


def step_of_one_rank(text, stage, ranks, width, inner, depth, rank=0):
    """Returns (result of the step, plan) for one rank."""
    recipe = stack_recipe(text, stage, ranks, width, inner, depth)
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "recipe.json")
        with open(file, "w") as out:
            json.dump(recipe, out)
        return one_rank("zero", file, rank, ranks), plan(recipe, ranks)


def section_7(text, ranks=64, width=1024, inner=2048, depth=8):
    """Yields (stage, bytes that a rank sends in a step, bytes by the paper's formula). Sizes are multiples of 16 x
    ranks, so nothing is rounded up."""
    for stage in (1, 2, 3):
        step, _ = step_of_one_rank(text, stage, ranks, width, inner, depth)
        elements = stack_parameters(width, inner, depth)
        yield stage, step["sent"], (3 if stage == 3 else 2) * 2 * elements * (ranks - 1) // ranks


def gpipe_schedule_s(stage_s, micro_batches):
    """Returns the seconds of a step with GPipe's schedule.
    Stage k takes stage_s[k] for a micro-batch's passes. All forward passes, which take a third of the time, precede
    all backward passes."""
    def passes(times):
        done = [[0.0] * micro_batches for _ in times]
        for k, seconds in enumerate(times):
            for m in range(micro_batches):
                done[k][m] = max(done[k][m - 1] if m else 0.0, done[k - 1][m] if k else 0.0) + seconds
        return done[-1][-1]
    return passes([s / 3 for s in stage_s]) + passes([2 * s / 3 for s in reversed(stage_s)])


def _step_s(text, stages, micro_batches, layers, samples, steps):
    recipe = {"model": zero_measure.gpt(width=256, layers=layers, positions=128),
              "data": {"type": "text", "path": text, "block_size": 128, "shuffle": False},
              "run": {"steps": steps, "seed": 1, "device": "cpu"},
              "engine": {"train_batch_size": samples, "gradient_accumulation_steps": micro_batches,
                         "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
                         "pipeline": {"stages": stages, "schedule": "gpipe", "partition": "best"}}}
    _, found = spawn.run_with_metrics(recipe, stages)
    return statistics.median(step["step_s"] for step in found[2:])


def gpipe_table_2(text, layers=8, samples=32, steps=8):
    """Yields (micro-batches, {stages: throughput relative to 2 stages and 1 micro-batch}).
    The throughput of 2 stages is measured. Those of 4 and 8 stages are computed from the schedule. Their stage times
    are a fraction of one process's time for a micro-batch of that size."""
    base = None
    for micro_batches in GPIPE_TABLE_2:
        two = _step_s(text, 2, micro_batches, layers, samples, steps)
        alone = _step_s(text, 1, micro_batches, layers, samples, steps) / micro_batches
        base = base or two
        row = {2: base / two}
        for stages in (4, 8):
            row[stages] = base / gpipe_schedule_s([alone / stages] * stages, micro_batches)
        yield micro_batches, row
