"""Tests that the next run resumes from the newest complete checkpoint, wherever a save is killed or the disk fails.

Each case runs a training whose changes below one folder are counted by tests/support/file_faults.cc, which injects a
fault at one call. The test then examines the folder with an independent reader, and lets a second run continue. By
default each kind of call gets some of the faults, chosen by a seed; DSLAUNCH_TEST_FULL=1 tries every call with every
fault."""

import collections
import concurrent.futures
import json
import os
import random
import re
import shutil
import tempfile
import unittest
import zlib

from inputs import write_idx_part
from spawn import Job, recipe

FAULTS = os.environ["DSLAUNCH_FILE_FAULTS"]
FULL = os.environ.get("DSLAUNCH_TEST_FULL") == "1"
IO, UNAVAILABLE = 74, 69
STEPS, KEEP = 4, 2
REASON = {"ENOSPC": "No space left on device", "EIO": "Input/output error"}
REMOVALS = ("unlink", "rmdir")


def flip_bit(file, bit):
    with open(file, "r+b") as stream:
        stream.seek(bit // 8)
        byte = stream.read(1)[0]
        stream.seek(bit // 8)
        stream.write(bytes([byte ^ 1 << bit % 8]))


def damage(checkpoint):
    """Returns the name of a damaged file of a checkpoint; "" if no file is damaged. Shares no code with the trainer."""
    try:
        with open(os.path.join(checkpoint, "manifest.json"), "rb") as file:
            first, rest = file.read().split(b"\n", 1)
        if first != b'{"crc32":"%08x",' % zlib.crc32(rest):
            return "manifest.json"
        for record in json.loads(first + rest)["files"]:
            with open(os.path.join(checkpoint, record["name"]), "rb") as file:
                content = file.read()
            if (len(content), zlib.crc32(content)) != (record["bytes"], record["crc32"]):
                return record["name"]
    except (OSError, ValueError) as error:
        return str(error)
    return ""


def step_of(path):
    found = re.fullmatch(r"step_(\d+)", os.path.basename(path))
    return int(found[1]) if found else None


def is_published(path):
    return step_of(path) is not None or os.path.basename(path) == "latest"


class PowerCut:
    """Replays a trace of calls and tracks what a power cut may lose: a file's content since its last fsync, and
    names since the last fsync of their folder."""

    def __init__(self):
        self.contents, self.names = set(), set()

    def published(self):
        return {path for path in self.names if is_published(path)}

    def follow(self, call):
        """Replays one call. Returns a violation, or None: an entry is published, renamed or removed while data on
        which this relies may still be lost."""
        name, path, to = call["call"], call["path"], call["to"]
        if call["result"] < 0:
            return None
        if name == "fsync":
            self.contents.discard(path)
            self.names = {entry for entry in self.names if os.path.dirname(entry) != path}
            return None
        problem = None
        if name in ("rename", "exchange"):
            below = {entry for entry in self.contents | self.names if (entry + "/").startswith(path + "/")} - {path}
            below |= self.contents & {path}
            if is_published(to) and below:
                problem = "%s is published before %s is synced" % (to, sorted(below))
            if self.published():
                problem = "%s is renamed before the name of %s is synced" % (path, sorted(self.published()))
            moved = lambda entries: {to + entry[len(path):] if entry in below | {path} else entry for entry in entries}
            self.contents, self.names = moved(self.contents), moved(self.names) | {to}
        elif name == "write":
            self.contents.add(path)
        elif name in REMOVALS:
            self.contents.discard(path)
            self.names.discard(path)
            if self.published():
                problem = "%s is removed before the name of %s is synced" % (path, sorted(self.published()))
            if is_published(os.path.dirname(path)):
                problem = path + " is removed while it stands under its name"
        elif name == "link":
            self.contents |= {to} if path in self.contents else set()
            self.names.add(to)
        else:  # open with O_CREAT, or mkdir
            self.names.add(path)
        return problem


def power_cut(calls):
    """Returns how a power cut could break a guarantee; "" if it could not."""
    power = PowerCut()
    for call in calls:
        problem = power.follow(call)
        if problem:
            return problem
    left = power.contents | power.names
    return "at the end %s may be lost" % sorted(left) if left else ""


class Crash(unittest.TestCase):
    """Tests one way to save. Subclasses define the state of the folder before the run with the fault."""

    world, faulty_rank, run_keys = 1, 0, {}
    thorough = True  # whether to try both a kill and a failing disk at each kind of call
    most_cases = 100  # number of other cases that are sampled

    @classmethod
    def setUpClass(cls):
        cls.seed = random.randrange(1 << 32)
        print("seed", cls.seed, flush=True)
        cls.random = random.Random(cls.seed)
        cls.folder = os.path.realpath(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.data = os.path.join(cls.folder, "data")
        os.mkdir(cls.data)
        write_idx_part(cls.data, {"train": 384, "t10k": 16})
        cls.numbers = iter(range(1, 1 << 30))
        cls.losses = cls("run").whole_run()

    def new_place(self):
        place = os.path.join(self.folder, "case%d" % next(self.numbers))
        os.mkdir(place)
        return place

    def train(self, place, steps, faults=None):
        """Runs a training with place/saves/checkpoints as the folder. Returns the ranks, and the losses by step."""
        metrics = os.path.join(place, "metrics.jsonl")
        if os.path.exists(metrics):
            os.remove(metrics)
        keys = {"steps": steps, "seed": 7, "metrics_jsonl": metrics, "save_every": 1, "keep_checkpoints": KEEP,
                "checkpoint_dir": os.path.join(place, "saves", "checkpoints")}
        wanted = recipe(optimizer={"type": "SGD", "params": {"lr": 0.05, "momentum": 0.9}},
                        engine={"train_batch_size": 64}, run=dict(keys, **self.run_keys), data={"path": self.data})
        env = {"LD_PRELOAD": FAULTS, "FILE_FAULTS_FOLDER": os.path.join(place, "saves"),
               "FILE_FAULTS_TRACE": os.path.join(place, "trace.jsonl")}
        env_of_rank = {rank: env for rank in range(self.world)} if faults is not None else {}
        if faults:
            env_of_rank[self.faulty_rank] = dict(env, FILE_FAULTS_AT=str(faults[0]), FILE_FAULTS_KIND=faults[1])
        with Job(wanted, self.world, env_of_rank=env_of_rank) as job:
            ranks = job.finish(60)
        losses = {}
        if os.path.exists(metrics):
            with open(metrics) as lines:
                losses = {step["step"]: step["loss"] for step in map(json.loads, lines) if "loss" in step}
        return ranks, losses

    def whole_run(self):
        ranks, losses = self.train(self.new_place(), STEPS + 1)
        assert [rank.code for rank in ranks] == [0] * self.world, ranks[0].err
        return losses

    def calls(self, place):
        with open(os.path.join(place, "trace.jsonl")) as lines:
            return [json.loads(line) for line in lines]

    def checkpoints(self, place):
        folder = os.path.join(place, "saves", "checkpoints")
        return folder, sorted(os.listdir(folder)) if os.path.exists(folder) else []

    def prepare(self, place):
        """Prepares the folder for the run with the fault."""
        os.mkdir(os.path.join(place, "saves"))

    def label(self, call):
        """Returns the kind of a call, which is the same in every save."""
        path = re.sub(r"step_\d+|-[0-9a-f]{8}$|-[0-9a-f]{8}(?=/)", "", call["path"])
        return call["call"], os.path.relpath(path, self.folder).partition("/")[2]

    def chosen(self, calls):
        """Returns pairs of the number of a call of the faulty rank and a kind of fault."""
        own = [call for call in calls if call["rank"] == self.faulty_rank]
        if self.world > 1:  # before the ranks are connected, only a launcher can detect a lost rank
            own = [call for call in own if "/checkpoints/" in call["path"]]
        kinds = {}
        for call in own:
            kinds[call["number"]] = ["before", "after"] + ["half"] * (call["call"] == "write") + ["EIO"] + ["ENOSPC"] * (
                call["call"] not in REMOVALS)
        if FULL:
            return [(number, kind) for number in sorted(kinds) for kind in kinds[number]]
        same = collections.defaultdict(list)
        for call in own:
            same[self.label(call)].append(call["number"])
        picked = set()
        for numbers in same.values():
            for dead in (True, False) if self.thorough else (self.random.random() < 0.5,):
                number = self.random.choice(numbers)
                wanted = [kind for kind in kinds[number] if (kind in REASON) != dead]
                picked.add((number, self.random.choice(wanted)))
        return sorted(self.random.sample(sorted(picked), min(len(picked), self.most_cases)))

    def test_resumes_after_a_fault_at_any_call(self):
        first = self.new_place()
        self.prepare(first)
        ranks, losses = self.train(first, STEPS, faults=())
        self.assertEqual([rank.code for rank in ranks], [0] * self.world, ranks[0].err)
        cases = self.chosen(self.calls(first))
        print(len(cases), "cases", flush=True)
        self.assertTrue(cases, "rank %d changes nothing" % self.faulty_rank)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            problems = [problem for problem in pool.map(lambda case: self.problem(*case), cases) if problem]
        self.assertFalse(problems, "\n".join(problems))

    def test_power_cut_loses_no_complete_checkpoint(self):
        """A kill loses no written data, so the order of the calls is checked for what a power cut would lose."""
        place = self.new_place()
        self.prepare(place)
        self.train(place, STEPS, faults=())
        calls = self.calls(place)
        self.assertGreaterEqual(sum(os.path.basename(call["to"]) == "latest" for call in calls), 2)
        self.assertEqual(power_cut(calls), "")
        for number, call in enumerate(calls):
            if call["call"] == "fsync":
                self.assertNotEqual(power_cut(calls[:number] + calls[number + 1:]), "", "%s for nothing" % call)

    def problem(self, number, kind):
        place = self.new_place()
        try:
            self.check(place, number, kind)
        except AssertionError as error:
            return "fault %s at call %d, rank %d: %s" % (kind, number, self.faulty_rank, error)
        shutil.rmtree(place)
        return None

    def check(self, place, number, kind):
        self.prepare(place)
        folder, before = self.checkpoints(place)
        damaged = {name for name in before if name.startswith("step_") and damage(os.path.join(folder, name))}
        order = [name for name in before if name.startswith("step_") and name not in damaged]
        latest_before = self.latest(folder)
        ranks, losses = self.train(place, STEPS, (number, kind))
        self.check_end(ranks, place, kind)

        for call in self.calls(place):
            step = step_of(call["to"])
            if call["call"] in ("rename", "exchange") and call["result"] >= 0 and step is not None:
                order.append(os.path.basename(call["to"]))
                damaged.discard(order[-1])
        whole = {name for name in self.checkpoints(place)[1] if name.startswith("step_")} - damaged
        for name in whole:
            self.assertEqual(damage(os.path.join(folder, name)), "", name + " stands under its name and is not whole")
        self.assertLessEqual(set(order[-KEEP:]), whole, "a checkpoint that is to be kept is lost")
        latest = self.latest(folder)
        if latest != latest_before:
            self.assertIn(latest, whole, "latest names no whole checkpoint")
        left = [name for name in self.checkpoints(place)[1] if name.startswith("tmp-")]

        # The run continues.
        ranks, rest = self.train(place, STEPS + 1)
        for rank in ranks:
            self.assertEqual((rank.code, rank.err), (0, ""))
        out = ranks[0].out
        start = step_of(order[-1]) if order else 0
        self.assertIn("resuming from %s/%s" % (folder, order[-1]) if order else "starting at step 1: ", out)
        self.assertEqual("skipped" in out, bool(damaged), out)
        for name in damaged:
            self.assertRegex(out, r"skipped %s: %s/%s/\S+: its checksum is wrong" % (name, folder, name))
        for name in left:
            self.assertIn("removed %s, left by an interrupted save" % name, out)
        wanted = {step: loss for step, loss in self.losses.items() if step > start}
        self.assertEqual(rest, wanted, "the losses are not those of an uninterrupted run")
        self.assertEqual(losses, {step: loss for step, loss in self.losses.items() if step in losses})
        names = self.checkpoints(place)[1]
        self.assertEqual([name for name in names if name.startswith("tmp-")], [])
        self.assertEqual(self.latest(folder), "step_%06d" % (STEPS + 1))
        self.assertEqual(damage(os.path.join(folder, self.latest(folder))), "")
        saved = order + ["step_%06d" % step for step in sorted(rest)]
        self.assertEqual({name for name in names if name.startswith("step_")}, set(saved[-KEEP:]))

    def check_end(self, ranks, place, kind):
        """Checks that every rank reports its cause: the failure of the faulty rank's disk, or the loss of that rank."""
        failure = r"^dslaunch-train: rank %%d: (the checkpoint \S+ is (not saved|saved, but[^:]*): )?(rank %d: )?%s/saves\S*: cannot be \w+: %s\n$" % (
            self.faulty_rank, place, REASON.get(kind))
        for number, rank in enumerate(ranks):
            if number == self.faulty_rank and kind not in REASON:
                self.assertEqual((rank.code, rank.err), (-9, ""))
            elif number != self.faulty_rank and rank.code == UNAVAILABLE:
                self.assertIn("another rank was lost", rank.err)
            else:
                self.assertEqual(rank.code, IO, rank.err)
                self.assertRegex(rank.err, failure % number)

    def latest(self, folder):
        try:
            with open(os.path.join(folder, "latest")) as file:
                return file.read()
        except FileNotFoundError:
            return None


class FreshFolderTest(Crash):
    """Saves 1 to 4 checkpoints in a new folder. The third save is the first one that removes an old checkpoint."""


class ReplacingTest(Crash):
    """Starts with a folder whose newest checkpoint is damaged, so it is skipped and its tag is saved again. A killed
    save has left files."""

    thorough, most_cases = False, 14

    def prepare(self, place):
        template = os.path.join(self.folder, "template")
        if not os.path.exists(template):
            made = self.new_place()
            ranks, _ = self.train(made, 3)
            assert [rank.code for rank in ranks] == [0] * self.world, ranks[0].err
            folder, names = self.checkpoints(made)
            shutil.copytree(os.path.join(folder, names[-1]), os.path.join(folder, "tmp-step_000004-01234567"))
            flip_bit(os.path.join(folder, "step_000003", "model.safetensors"), 50001)
            os.rename(os.path.join(made, "saves"), template)
        shutil.copytree(template, os.path.join(place, "saves"))


class SecondOfTwoRanksTest(Crash):
    """Injects faults into rank 1, which writes only its part."""

    world, faulty_rank, most_cases = 2, 1, 8


class FirstOfTwoRanksTest(Crash):
    """Injects faults into rank 0, which assembles the checkpoint."""

    world, thorough, most_cases = 2, False, 8


class BackgroundTest(Crash):
    """Saves in a thread while the steps continue."""

    world, thorough, most_cases, run_keys = 2, False, 8, {"async_save": True}


def load_tests(loader, _, __):
    cases = (FreshFolderTest, ReplacingTest, FirstOfTwoRanksTest, SecondOfTwoRanksTest, BackgroundTest)
    return unittest.TestSuite(loader.loadTestsFromTestCase(case) for case in cases)


if __name__ == "__main__":
    unittest.main()
