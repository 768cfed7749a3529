"""Runs dslaunch and PyTorch programs in turns, for tests/bench/train, tests/bench/zero, tests/bench/tensor and
tests/bench/pipeline: ranks on the CPU with one thread each, for one small GPT."""

import copy
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from launcher_case import DSLAUNCH, TRAIN  # noqa: E402

ORACLE = os.environ.get("DSLAUNCH_ORACLE_PYTHON", str(ROOT / ".deps" / "oracle" / "bin" / "python3"))
WARM_UP_STEPS = 3
RUN_TIMEOUT_S = 600
POLL_S = 0.01
MEMORY_POLL_S = 0.2
SAMPLES_OF_A_RANK = 4

# Maps each name to its model and the number of tokens of a sample.
MODELS = {
    "gpt": ({"type": "gpt2", "n_layer": 4, "n_embd": 256, "n_head": 8, "n_positions": 256, "vocab_size": 512,
             "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}, 256),
    # This is the model of the recipe llama_tiny.
    "llama_tiny": ({"type": "decoder", "model_type": "llama", "vocab_size": 256, "hidden_size": 128,
                    "intermediate_size": 352, "num_hidden_layers": 4, "num_attention_heads": 4,
                    "num_key_value_heads": 2, "max_position_embeddings": 128, "tie_word_embeddings": True}, 128),
}
RECIPE = {
    "data": {"type": "tokens", "shuffle": False},
    "engine": {"gradient_clipping": 1.0,
               "optimizer": {"type": "AdamW", "params": {"lr": 0.0003, "weight_decay": 0.01}}},
}


def ranks_below(pid):
    """Returns those descendants of a process that are ranks, which have RANK in their environment."""
    parents = {}
    for entry in pathlib.Path("/proc").iterdir():
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (ValueError, OSError):
            pass  # not a process, or a process that has just ended
    found = []
    for process, parent in parents.items():
        while parent not in (0, pid):
            parent = parents.get(parent, 0)
        try:
            if parent == pid and b"\0RANK=" in b"\0" + pathlib.Path(f"/proc/{process}/environ").read_bytes():
                found.append(process)
        except OSError:
            pass
    return found


def peak_mib(pid):
    """Returns VmHWM of a process in MiB; 0 if the process has ended."""
    try:
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0


class Job:
    """One command that appends a JSON object to `metrics` after each step."""

    def __init__(self, argv, metrics):
        self.argv, self.metrics = argv, pathlib.Path(metrics)
        self.first_step_s, self.peak_mib, self.ranks = None, 0, []
        self.output = tempfile.TemporaryFile()
        self.begin = time.perf_counter()
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=self.output, stderr=subprocess.STDOUT,
                                        env=dict(os.environ, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo",
                                                 DS_ACCELERATOR="cpu"))

    def poll(self):
        """Records the peak memory. Returns whether the command is still running."""
        if self.first_step_s is None:
            if self.metrics.exists() and self.metrics.stat().st_size:
                self.first_step_s = time.perf_counter() - self.begin
                self.ranks = ranks_below(self.process.pid)
        self.peak_mib = max([self.peak_mib, *map(peak_mib, self.ranks)])
        return self.process.poll() is None

    def result(self):
        if self.process.returncode != 0 or self.first_step_s is None:
            self.output.seek(0)
            sys.exit(f"'{' '.join(self.argv)}' ended with {self.process.returncode}:\n"
                     f"{self.output.read().decode(errors='replace')}")
        records = [json.loads(line) for line in self.metrics.read_text().splitlines()]
        steps = [record for record in records if "eval" not in record]
        timed = steps[WARM_UP_STEPS:]
        return {"step_s": statistics.median(step["step_s"] for step in timed), "timed": timed,
                "losses": [step["loss"] for step in steps], "first_step_s": self.first_step_s, "peak_mib": self.peak_mib}


def run(commands):
    """Runs all (argv, metrics file) at the same time; returns the result of each."""
    jobs = []
    try:
        jobs += [Job(argv, metrics) for argv, metrics in commands]
        deadline = time.monotonic() + RUN_TIMEOUT_S
        while any([job.poll() for job in jobs]):
            if time.monotonic() > deadline:
                sys.exit(f"'{' '.join(jobs[0].argv)}' has not ended after {RUN_TIMEOUT_S} s")
            time.sleep(MEMORY_POLL_S if all(job.first_step_s for job in jobs) else POLL_S)
    finally:
        for job in jobs:
            if job.process.poll() is None:
                job.process.terminate()
    return [job.result() for job in jobs]


class Bench:
    """Makes commands for training a model for `steps` steps, in a folder that also gets its weights, and data for
    steps of up to `samples` samples."""

    def __init__(self, folder, steps, samples=2 * SAMPLES_OF_A_RANK, model="gpt"):
        self.folder = pathlib.Path(folder)
        self.runs = 0
        self.recipe = copy.deepcopy(RECIPE)
        self.recipe["model"], self.recipe["data"]["block_size"] = MODELS[model]
        self.recipe["data"]["path"] = str(self.folder / "tokens.bin")
        self.recipe["run"] = {"steps": steps, "init_weights": str(self.folder / "weights.safetensors")}
        both = copy.deepcopy(self.recipe)
        both["engine"]["train_batch_size"] = samples
        subprocess.run([ORACLE, str(pathlib.Path(__file__).with_name("train_ddp.py")), "prepare",
                        self.write(both, "both")], check=True, timeout=RUN_TIMEOUT_S)

    def write(self, recipe, name):
        file = self.folder / f"{name}.json"
        file.write_text(json.dumps(recipe))
        return str(file)

    def _next(self, ranks, engine):
        """Returns (recipe, metrics file) of the next run."""
        self.runs += 1
        recipe = copy.deepcopy(self.recipe)
        recipe["engine"].update({"train_batch_size": SAMPLES_OF_A_RANK * ranks, **engine})
        return recipe, str(self.folder / f"metrics{self.runs}.jsonl")

    def dslaunch(self, ranks, engine={}):
        """Returns (argv, metrics file) of dslaunch. `engine` is added to the recipe's engine section."""
        recipe, metrics = self._next(ranks, engine)
        recipe["run"]["metrics_jsonl"] = metrics
        return [DSLAUNCH, "--launcher", "local", "--num_gpus", str(ranks), "--device", "cpu", "--log_dir",
                str(self.folder / "jobs"), "train", self.write(recipe, f"recipe{self.runs}")], metrics

    def pytorch(self, program, ranks, engine={}, python=ORACLE):
        """Returns (argv, metrics file) of PyTorch. `program`: (a script beside this one, its first argument)."""
        recipe, metrics = self._next(ranks, engine)
        script, what = program
        argv = [python]
        if ranks > 1:
            argv += ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks)]
        return argv + [str(pathlib.Path(__file__).with_name(script)), what, self.write(recipe, f"recipe{self.runs}"),
                       metrics], metrics


def check_losses(losses, tolerance):
    """Exits if two of {name: losses} differ by more than the relative `tolerance`."""
    (name, ours), *others = losses.items()
    for other, theirs in others:
        for step, (a, b) in enumerate(zip(ours, theirs, strict=True), 1):
            if not abs(a - b) <= tolerance * abs(b):
                sys.exit(f"they do not compute the same: the loss of step {step} is {a} with {name} and {b} with {other}")


def check_steps(parser, arguments):
    if arguments.rounds < 1 or arguments.steps <= WARM_UP_STEPS:
        parser.error(f"at least 1 round and {WARM_UP_STEPS + 1} steps are needed")


def check_there():
    for binary in (DSLAUNCH, TRAIN):
        if not os.path.exists(binary):
            sys.exit(f"{binary} is not built; ./quickstart builds it, or set DSLAUNCH_BUILD_DIR")
    if not os.path.exists(ORACLE):
        sys.exit(f"{ORACLE} does not exist; packaging/fetch-oracle fetches PyTorch, or set DSLAUNCH_ORACLE_PYTHON to a "
                 "Python that has it")
