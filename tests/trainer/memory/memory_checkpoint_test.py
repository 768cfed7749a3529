"""Tests that killed ranks continue from the copies in their node's memory, as if they had not been killed.

The test acts as the launcher: it keeps two memory files for each rank, kills ranks at random moments and starts all of
them again. By default some combinations are tried, chosen by a seed; DSLAUNCH_TEST_FULL=1 kills 200 times."""

import collections
import fcntl
import json
import os
import pathlib
import random
import re
import shutil
import struct
import tempfile
import time
import unittest

from inputs import write_idx_part, write_text
from spawn import DEVICE, Job, recipe, steps_of

FULL = os.environ.get("DSLAUNCH_TEST_FULL") == "1"
F_ADD_SEALS, F_SEAL_SHRINK = 1033, 2
HEADER = 4096  # number of bytes before the copy in a slot
STEPS, EVERY = 24, 3
KILLS = 200 if FULL else 10
MODELS = {
    "mlp": {"type": "mlp"},
    "wide mlp": {"type": "mlp", "hidden_size": 512},  # large enough that a thread computes the checksum of its copies
    "gpt2": {"type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 32, "n_positions": 16, "vocab_size": 256},
    "gpt2 with adapters": {"type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 32, "n_positions": 16, "vocab_size": 256},
}
LAYOUTS = {
    "zero 0": (2, {}),
    "zero 1": (2, {"zero_optimization": {"stage": 1}}),
    "zero 3": (2, {"zero_optimization": {"stage": 3}}),
    "pipeline": (2, {"gradient_accumulation_steps": 2, "pipeline": {"stages": 2}}),
    "pipeline and zero 1": (4, {"gradient_accumulation_steps": 2, "pipeline": {"stages": 2},
                                "zero_optimization": {"stage": 1}}),
    "tensor": (2, {"tensor_parallel": {"autotp_size": 2}}),
    "tensor and zero 1": (4, {"tensor_parallel": {"autotp_size": 2}, "zero_optimization": {"stage": 1}}),
    "tensor and pipeline": (4, {"gradient_accumulation_steps": 2, "pipeline": {"stages": 2},
                                "tensor_parallel": {"autotp_size": 2}}),
    "recorded": (2, {"cuda_graph": True}),
    "recorded and zero 1": (2, {"cuda_graph": True, "zero_optimization": {"stage": 1}}),
}
ADAPTERS = {"rank": 4, "alpha": 8, "dropout": 0.1, "targets": "all-linear"}
COMBINATIONS = [(model, layout, bf16) for model in MODELS for layout in LAYOUTS for bf16 in (False, True)
                if layout.startswith("zero") or "gpt2" in model and "recorded" not in layout]


class Memory:
    """Holds the memory files of a node's ranks, as a supervisor does."""

    def __init__(self, world):
        self.fds = [[self.new_file() for _ in range(2)] for _ in range(world)]

    @staticmethod
    def new_file():
        fd = os.memfd_create("copy", os.MFD_ALLOW_SEALING)
        fcntl.fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK)
        return fd

    def close(self):
        for fd in sum(self.fds, []):
            os.close(fd)

    def steps(self, rank):
        """Returns {step: descriptor} of those slots of a rank that have a header."""
        found = {}
        for fd in self.fds[rank]:
            header = os.pread(fd, 24, 0)
            if header[:8] == b"DSLCOPY1":
                found[struct.unpack("<q", header[16:24])[0]] = fd
        return found

    def has_torn_copy(self):
        """Returns whether some slot has a copy that was begun but not completed."""
        return any(os.fstat(fd).st_size > HEADER and os.pread(fd, 8, 0) == bytes(8) for fd in sum(self.fds, []))

    def allocated(self):
        return sum(os.fstat(fd).st_blocks for fd in sum(self.fds, [])) * 512


class Run:
    """A training whose ranks are started again and again, with the folder and the memory of their node."""

    def __init__(self, folder, model, world, engine, run):
        os.makedirs(folder)
        self.folder, self.world, self.attempt = folder, world, 0
        self.metrics = os.path.join(folder, "metrics.jsonl")
        data = {"path": os.path.join(os.path.dirname(folder), "data")}
        if "gpt2" in model:
            data = {"type": "text", "path": os.path.join(os.path.dirname(folder), "text"), "block_size": 16}
        self.recipe = recipe(
            optimizer={"type": "AdamW", "params": {"lr": 0.003}}, data=data,
            engine={"train_batch_size": 16, **engine},
            run={"steps": STEPS, "seed": 5, "memory_checkpoint": EVERY, "metrics_jsonl": self.metrics, **run})
        self.recipe["model"] = MODELS[model]
        if "adapters" in model:
            self.recipe["lora"] = ADAPTERS
        self.memory = Memory(world)

    def start(self, change=None):
        self.attempt += 1
        env = {rank: {"DSLAUNCH_JOB_ID": "job", "DSLAUNCH_ATTEMPT": str(self.attempt),
                      "DSLAUNCH_MEMORY_CHECKPOINT": str(EVERY),
                      "DSLAUNCH_MEMORY_FDS": "%d,%d" % tuple(fds)} for rank, fds in enumerate(self.memory.fds)}
        return Job(change or self.recipe, self.world, env_of_rank=env, fds_of_rank=dict(enumerate(self.memory.fds)))

    def losses(self, attempt=None):
        """Returns {step: loss} of an attempt; of all attempts by default."""
        if not os.path.exists(self.metrics):
            return {}
        with open(self.metrics) as lines:
            whole = [line for line in lines if line.endswith("\n")]
        return {step["step"]: step["loss"] for step in steps_of(whole) if attempt in (None, step["attempt"])}

    def saved_step(self):
        """Returns the step of the newest checkpoint on the disk."""
        return max(int(path.name[5:]) for path in pathlib.Path(self.folder, "saves").glob("step_*"))

    def is_saving(self):
        """Returns whether a checkpoint is being written to the disk, or was being written when the ranks were
        killed."""
        return any(pathlib.Path(self.folder, "saves").glob("tmp-*"))

    def weights(self):
        """Returns the bytes of the last checkpoint's tensor files."""
        folder = pathlib.Path(self.folder, "saves", "step_%06d" % STEPS)
        return {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}


def start_of(out):
    """Returns (source, step) of the start of a run, from the line that rank 0 prints."""
    if found := re.search(r"resuming from memory after step (\d+)", out):
        return "memory", int(found[1])
    if found := re.search(r"resuming from \S+/step_(\d+)", out):
        return "disk", int(found[1])
    return "nothing", 0


class MemoryCheckpoint(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.seed = random.randrange(1 << 32)
        print("seed", cls.seed, flush=True)
        cls.random = random.Random(cls.seed)
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        os.mkdir(os.path.join(cls.folder, "data"))
        write_idx_part(os.path.join(cls.folder, "data"), {"train": 300, "t10k": 16})
        write_text(os.path.join(cls.folder, "text"), 6000)
        cls.references, cls.runs = {}, 0

    def new_run(self, model="mlp", layout="zero 0", bf16=False, saves=False, **run):
        world, engine = LAYOUTS[layout]
        engine = {**engine, **({"bf16": {"enabled": True}} if bf16 else {})}
        type(self).runs += 1
        folder = os.path.join(self.folder, "run%d" % self.runs)
        keys = {"checkpoint_dir": os.path.join(folder, "saves"), **({"save_every": 4} if saves else {}), **run}
        made = Run(folder, model, world, engine, keys)
        self.addCleanup(made.memory.close)
        return made

    def reference(self, model, layout, bf16):
        """Returns the losses and the weights of an undisturbed run that makes no copies."""
        key = model, layout, bf16
        if key not in self.references:
            undisturbed = self.new_run(*key, memory_checkpoint=0)
            self.finish(undisturbed)
            self.references[key] = undisturbed.losses(), undisturbed.weights()
        return self.references[key]

    def finish(self, run, change=None):
        """Runs an attempt to its end and returns rank 0."""
        with run.start(change) as job:
            ranks = job.finish(60)
        for rank in ranks:
            self.assertEqual(rank.code, 0, rank.err)
        return ranks[0]

    def kill_at(self, run, step, delay_s=0.0, moment=lambda: True):
        """Runs an attempt, and then kills all ranks, one after the other. Waits until the attempt has made `step` and
        `moment` returns true, or until rank 0 has ended. Returns the output of rank 0, and the steps that the attempt
        made."""
        with run.start() as job:
            job.wait_for(lambda: max(run.losses(run.attempt), default=0) >= step or job.processes[0].poll() is not None,
                         60, "step %d" % step)
            time.sleep(delay_s)
            while not moment() and job.processes[0].poll() is None:
                pass  # polls without a sleep, because a copy takes less time than a sleep
            for process in self.random.sample(job.processes, len(job.processes)):
                process.kill()
            rank = job.finish(20)[0]
        return rank.out, run.losses(run.attempt)

    def assert_as_undisturbed(self, run, reference):
        losses, weights = reference
        self.assertEqual(run.losses(), losses)
        for attempt in range(1, run.attempt + 1):
            self.assertEqual({}, {step: loss for step, loss in run.losses(attempt).items() if loss != losses[step]})
        self.assertEqual(run.weights().keys(), weights.keys())
        for name, content in weights.items():
            self.assertTrue(run.weights()[name] == content, name + " differs")


class KillTest(MemoryCheckpoint):
    def test_kills_lose_at_most_the_steps_between_copies(self):
        kills, self.starts, moments = 0, collections.Counter(), collections.Counter()
        while kills < KILLS:
            model, layout, bf16 = key = self.random.choice(COMBINATIONS)
            saves = self.random.random() < 0.5
            reference = self.reference(*key)
            run = self.new_run(*key, saves=saves)
            made, wanted = 0, self.random.randint(1, 4)
            with self.subTest(seed=self.seed, kills=kills, model=model, layout=layout, bf16=bf16, saves=saves):
                for _ in range(wanted):
                    out, losses = self.kill_once(run, moments)
                    kills += 1
                    self.check_start(run, out, made)
                    made = max(made, *losses, 0)
                rank = self.finish(run)
                self.check_start(run, rank.out, made)
                self.assert_as_undisturbed(run, reference)
        print(kills, "kills:", dict(moments), "; attempts started from:", dict(self.starts), flush=True)
        self.assertGreater(self.starts["memory"], 0)
        if FULL:
            for moment in ("start", "step", "torn copy", "unfinished save"):
                self.assertGreater(moments[moment], 0, moment)

    def kill_once(self, run, moments):
        """Kills all ranks of the next attempt at a random moment. Counts the moment and the operation that was in
        progress."""
        moment = self.random.choice(("start", "step", "copy", "save"))
        at = self.random.randint(1, STEPS - EVERY)
        was_torn, was_saving = run.memory.has_torn_copy(), run.is_saving()
        if moment == "start":  # kills before the ranks connect, while they read their copies, or soon after
            killed = self.kill_at(run, 0, self.random.random() * 0.6)
        elif moment == "copy" and not was_torn:
            killed = self.kill_at(run, at, moment=run.memory.has_torn_copy)
        elif moment == "save" and "save_every" in run.recipe["run"] and not was_saving:
            killed = self.kill_at(run, at, moment=run.is_saving)
        else:
            moment = "step"
            killed = self.kill_at(run, at, self.random.random() * 0.02)
        moments[moment] += 1
        moments["torn copy"] += run.memory.has_torn_copy() and not was_torn
        moments["unfinished save"] += run.is_saving() and not was_saving
        return killed

    def check_start(self, run, out, made):
        """Checks where an attempt has started, after attempts that have made `made` steps."""
        if run.attempt == 1 or not out:
            return
        source, step = start_of(out)
        self.starts[source] += 1
        self.assertLessEqual(step, made + 1)  # the last step may have been made without being in the file
        self.assertLessEqual(made - step, EVERY, out)
        if made >= 2 * EVERY and "save_every" not in run.recipe["run"]:
            self.assertEqual(source, "memory", out)


class StartTest(MemoryCheckpoint):
    def killed(self, after=2 * EVERY, **keys):
        """Returns a run that was killed between two copies, so that every rank has the same two complete copies."""
        for _ in range(20):
            run = self.new_run(**keys)
            self.kill_at(run, after + 1)
            steps = [set(run.memory.steps(rank)) for rank in range(run.world)]
            if len(steps[0]) == 2 and all(each == steps[0] for each in steps):
                return run
        self.fail("each of 20 kills was in a copy")

    def flip_bit(self, run, rank, step, at):
        fd = run.memory.steps(rank)[step]
        byte = os.pread(fd, 1, at)[0]
        os.pwrite(fd, bytes([byte ^ 1 << self.random.randrange(8)]), at)

    def test_takes_older_copy_if_the_newest_is_damaged(self):
        reference = self.reference("mlp", "zero 1", False)
        for name in ("bit", "header", "torn"):
            with self.subTest(name):
                run = self.killed(layout="zero 1")
                newest, oldest = sorted(run.memory.steps(1), reverse=True)
                self.assertEqual(newest - oldest, EVERY)
                fd = run.memory.steps(1)[newest]
                if name == "bit":
                    self.flip_bit(run, 1, newest, self.random.randrange(HEADER, HEADER + 1000))
                elif name == "header":
                    self.flip_bit(run, 1, newest, self.random.randrange(56))
                else:
                    half = (os.fstat(fd).st_size - HEADER) // 2
                    os.pwrite(fd, bytes(half), HEADER + half)
                rank = self.finish(run)
                self.assertEqual(start_of(rank.out), ("memory", oldest))
                self.assert_as_undisturbed(run, reference)

    def test_takes_disk_if_both_copies_are_damaged(self):
        run = self.killed(saves=True)
        for step in run.memory.steps(0):
            self.flip_bit(run, 0, step, HEADER + 9)
        saved = run.saved_step()
        rank = self.finish(run)
        self.assertEqual(start_of(rank.out), ("disk", saved))
        self.assert_as_undisturbed(run, self.reference("mlp", "zero 0", False))

    def test_takes_disk_if_it_is_newer(self):
        run = self.killed(saves=True)
        saved = run.saved_step()
        for rank in range(run.world):  # the copies become the same as in a job whose disk has a later step
            for step, fd in run.memory.steps(rank).items():
                if step >= saved:
                    os.pwrite(fd, bytes(8), 0)
        rank = self.finish(run)
        self.assertEqual(start_of(rank.out), ("disk", saved))

    def test_takes_disk_with_another_layout(self):
        run = self.killed(saves=True)
        other = json.loads(json.dumps(run.recipe))
        other["engine"]["zero_optimization"] = {"stage": 1}
        saved = run.saved_step()
        rank = self.finish(run, other)
        self.assertEqual(start_of(rank.out), ("disk", saved))

    def test_first_attempt_takes_no_copy(self):
        run = self.killed()
        run.attempt = 0
        rank = self.finish(run)
        self.assertEqual(start_of(rank.out), ("nothing", 0))

    def continues(self, model, layout, bf16=False, **keys):
        with self.subTest(model=model, layout=layout, bf16=bf16):
            run = self.killed(model=model, layout=layout, bf16=bf16, **keys)
            newest = max(run.memory.steps(0))
            rank = self.finish(run)
            self.assertEqual(start_of(rank.out), ("memory", newest))
            self.assert_as_undisturbed(run, self.reference(model, layout, bf16))

    def test_continues_with_divided_layers(self):
        self.continues("gpt2", "tensor")
        self.continues("gpt2", "tensor and zero 1", bf16=True)
        self.continues("gpt2", "tensor and pipeline")

    def test_continues_with_adapters(self):
        self.continues("gpt2 with adapters", "zero 0")
        self.continues("gpt2 with adapters", "zero 3", bf16=True)
        self.continues("gpt2 with adapters", "tensor and zero 1")

    @unittest.skipUnless(DEVICE == "cuda", "a step is recorded on a GPU only")
    def test_continues_with_recorded_steps(self):
        # A step is recorded after 11 steps, both before the kill and after it.
        self.continues("mlp", "recorded", after=4 * EVERY)
        self.continues("mlp", "recorded and zero 1", bf16=True, after=4 * EVERY)

    def test_continues_without_checkpoint_dir(self):
        run = self.new_run(checkpoint_dir="")
        self.kill_at(run, 2 * EVERY + 1)
        rank = self.finish(run)
        self.assertEqual(start_of(rank.out)[0], "memory")
        self.assertEqual(run.losses(), self.reference("mlp", "zero 0", False)[0])

    def test_saves_last_step_that_only_memory_has(self):
        run = self.new_run()
        self.finish(run)
        shutil.rmtree(os.path.join(run.folder, "saves"))
        rank = self.finish(run)
        self.assertEqual(start_of(rank.out), ("memory", STEPS))
        self.assert_as_undisturbed(run, self.reference("mlp", "zero 0", False))

    def test_continues_after_the_last_save(self):
        run = self.new_run(layout="zero 3")
        self.finish(run)
        rank = self.finish(run)
        self.assertEqual(start_of(rank.out), ("memory", STEPS))
        self.assert_as_undisturbed(run, self.reference("mlp", "zero 3", False))

    def test_memory_does_not_grow_with_attempts(self):
        run = self.killed()
        self.kill_at(run, 5 * EVERY)  # both memory files of each rank have already held a copy
        before = run.memory.allocated()
        for _ in range(2):
            self.kill_at(run, 7 * EVERY)
        self.assertLessEqual(run.memory.allocated(), before * 1.1)


class WithoutMemoryTest(unittest.TestCase):
    def test_names_launcher_that_keeps_no_memory(self):
        with Job(recipe(run={"steps": 2, "memory_checkpoint": 1}), 1) as job:
            (rank,) = job.finish(60)
        self.assertEqual(rank.code, 0, rank.err)
        self.assertIn("no copies of the state are made in memory", rank.out)


if __name__ == "__main__":
    unittest.main()
