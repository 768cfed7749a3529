"""Tests the files that a run writes about itself: metrics and a profile of each rank, and the output of the engine
configuration's monitors. Values are compared with each other and with PyTorch's own counts."""

import csv
import glob
import json
import os
import re
import shutil
import struct
import tempfile
import unittest

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from gpt2 import Gpt2
from spawn import Job, recipe, steps_of

GPT2 = {"type": "gpt2", "vocab_size": 256, "n_positions": 64, "n_embd": 256, "n_layer": 4, "n_head": 4}
BLOCK, BATCH = 64, 8
CATEGORIES = ["parameters", "gradients", "buckets", "optimizer", "buffers", "activations"]


def masked_crc32c(data):
    """Computes the masked CRC-32C from its definition (RFC 3720), bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def fields(data):
    """Returns the fields of a protobuf message: [(number, value)], with values as encoded."""
    at, found = 0, []

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            value = varint()
        else:
            size = {1: 8, 5: 4}.get(kind) or varint()
            value = data[at:at + size]
            at += size
        found.append((key >> 3, value))
    return found


def tensorboard_scalars(file):
    """Returns [(step, tag, value)] of an event file, and verifies its checksums."""
    with open(file, "rb") as stream:
        data = stream.read()
    scalars, at = [], 0
    while at < len(data):
        length, length_crc = struct.unpack_from("<QI", data, at)
        assert masked_crc32c(data[at:at + 8]) == length_crc
        event = data[at + 12:at + 12 + length]
        assert masked_crc32c(event) == struct.unpack_from("<I", data, at + 12 + length)[0]
        at += 16 + length
        event = dict(fields(event))
        if 3 in event:
            assert event[3] == b"brain.Event:2" and not scalars
            continue
        value = dict(fields(dict(fields(event[5]))[1]))
        scalars.append((event[2], value[1].decode(), struct.unpack("<f", value[2])[0]))
    return scalars


def forward_flops(samples):
    """Returns the floating-point operations of a forward pass, counted by PyTorch."""
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        Gpt2(GPT2)(torch.zeros(samples, BLOCK, dtype=torch.long))
    return counter.get_total_flops()


class ProfileTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        with open(self.file("text"), "wb") as file:
            file.write(bytes(range(256)) * 64)

    def file(self, *names):
        return os.path.join(self.folder, *names)

    def run_gpt2(self, world=2, run=None, engine=None, code=0, model=GPT2):
        """Runs a training and returns rank 0's output. Each rank has its own folder."""
        wanted = recipe(run=dict({"steps": 6, "seed": 1}, **(run or {})),
                        engine=dict({"train_batch_size": BATCH}, **(engine or {})))
        wanted.update(model=model, data={"type": "text", "path": self.file("text"), "block_size": BLOCK})
        env = {}
        for rank in range(world):
            env[rank] = {"DSLAUNCH_RANK_DIR": self.file("rank_%d" % rank)}
            os.makedirs(env[rank]["DSLAUNCH_RANK_DIR"], exist_ok=True)
        with Job(wanted, world, env_of_rank=env) as job:
            ranks = job.finish()
        for rank in ranks:
            self.assertEqual((rank.code, rank.err), (code, ""))
        return ranks[0].out

    def json_lines(self, *names):
        with open(self.file(*names)) as stream:
            return steps_of(stream)

    def profile(self, rank):
        return self.json_lines("rank_%d" % rank, "profile.json")[0]

    def trace(self, rank):
        with open(self.file("rank_%d" % rank, "trace.json")) as stream:
            return json.load(stream)

    def test_writes_metrics_of_each_rank_and_run_info(self):
        self.run_gpt2(run={"peak_tflops": 0.5})
        for rank in range(2):
            lines = self.json_lines("rank_%d" % rank, "metrics.jsonl")
            self.assertEqual(lines[-1]["step"], 6)
            self.assertEqual(sum(line["steps"] for line in lines), 6)
            for line in lines:
                self.assertTrue(0 < line["compute_s"] <= line["step_s"] * 1.001, line)
                self.assertEqual("loss" in line, rank == 0)
        info = self.json_lines("rank_0", "run.json")[0]
        self.assertFalse(os.path.exists(self.file("rank_1", "run.json")))
        self.assertEqual((info["model"], info["dtype"], info["world_size"], info["zero_stage"]),
                         ("gpt2", "fp32", 2, 0))
        self.assertEqual(info["parameters"], sum(p.numel() for p in Gpt2(GPT2).parameters()))
        self.assertEqual(info["flops_per_step"], 3 * forward_flops(BATCH))
        last = self.json_lines("rank_0", "metrics.jsonl")[-1]
        self.assertAlmostEqual(last["mfu"], info["flops_per_step"] / last["step_s"] / (2 * 0.5e12), places=9)
        self.assertEqual(info["memory_plan"]["parameters"], 4 * info["parameters"])

    def test_self_times_add_up_to_wall_time(self):
        out = self.run_gpt2(run={"profile": {"sort_by": "total_time", "rows": 5}})
        self.assertIn("wall time of 3 steps", out)
        for rank in range(2):
            profile = self.profile(rank)
            self.assertEqual((profile["rank"], profile["steps"]), (rank, 3))
            self.assertAlmostEqual(sum(row["self_s"] for row in profile["operators"]), profile["wall_s"],
                                   delta=0.05 * profile["wall_s"])
            names = [row["name"] for row in profile["operators"]]
            for name in ("ProfilerStep*", "forward", "backward", "update", "data", "aten::mm"):
                self.assertIn(name, names)
            totals = [row["total_s"] for row in profile["operators"]]
            self.assertEqual(totals, sorted(totals, reverse=True))
        # In three steps there are four layers with four products each, in the forward pass and for the gradients of
        # their inputs.
        linear = next(row for row in self.profile(0)["operators"] if row["name"] == "mkldnn::_linear_pointwise")
        self.assertEqual(linear["calls"], 3 * 4 * 4 * 2)

    def test_memory_categories_add_up_to_allocated_bytes(self):
        for engine in ({}, {"zero_optimization": {"stage": 1}}, {"zero_optimization": {"stage": 3}},
                       {"bf16": {"enabled": True}, "gradient_accumulation_steps": 2,
                        "optimizer": {"type": "AdamW", "params": {"lr": 0.001}}}):
            self.run_gpt2(run={"profile": {}, "steps": 3}, engine=engine)
            for rank in range(2):
                memory = self.profile(rank)["memory"]
                self.assertGreater(memory["activations"], 0)
                self.assertAlmostEqual(sum(memory[name] for name in CATEGORIES), memory["allocated"],
                                       delta=0.05 * memory["allocated"], msg=(engine, memory))

    def test_profile_from_first_step_has_no_memory(self):
        """The profiler replaces the counter of allocations, so a profile that begins at the first step has no sum."""
        out = self.run_gpt2(run={"profile": {"wait": 0, "warmup": 0, "active": 2}, "steps": 4})
        self.assertNotIn("memory", self.profile(0))
        self.assertNotIn("allocated", out)

    def test_writes_chrome_trace_with_rank(self):
        self.run_gpt2(run={"profile": {"wait": 0, "warmup": 0, "active": 2}, "steps": 3})
        for rank in range(2):
            trace = self.trace(rank)
            self.assertEqual(trace["distributedInfo"], {"backend": "shm", "rank": rank, "world_size": 2})
            self.assertGreater(len(trace["traceEvents"]), 100)
            # These are the requirements of Perfetto's importer for JSON events.
            for event in trace["traceEvents"]:
                self.assertIsInstance(event["name"], str)
                self.assertIn(event["ph"], "BEXisfMCtPNOD")
                if event["ph"] == "M":
                    self.assertIn(event["name"], ("process_name", "process_labels", "process_sort_index",
                                                  "thread_name", "thread_sort_index"))
                    self.assertIsInstance(event["args"], dict)
                    continue
                self.assertIsInstance(event["ts"], (int, float))
                self.assertIn("pid", event)
                self.assertIn("tid", event)
                if event["ph"] == "X":
                    self.assertGreaterEqual(event["dur"], 0)
                if event["ph"] in "sf":
                    self.assertIn("id", event)
            steps = [event for event in trace["traceEvents"] if event["name"].startswith("ProfilerStep#")]
            self.assertEqual([event["name"] for event in steps], ["ProfilerStep#0", "ProfilerStep#1"])

    def hidden_share(self, overlap):
        self.run_gpt2(run={"profile": {}}, engine={"zero_optimization": {"stage": 0, "overlap_comm": overlap}})
        shares = []
        for rank in range(2):
            communication = self.profile(rank)["communication"]
            reduces = next(kind for kind in communication["kinds"] if kind["name"] == "all_reduce")
            parameters = sum(p.numel() for p in Gpt2(GPT2).parameters())
            self.assertAlmostEqual(reduces["bytes"], 3 * 4 * parameters, delta=4096)
            shares.append(communication["hidden_s"] / communication["total_s"])
        return shares

    def test_overlap_hides_more_communication(self):
        together, after = self.hidden_share(True), self.hidden_share(False)
        print("hidden communication: %s with overlap_comm, %s without" % (together, after))
        for rank in range(2):
            self.assertGreater(together[rank], after[rank])

    def test_prints_profile_without_folder(self):
        wanted = recipe(run={"steps": 3, "profile": {"wait": 0}})
        with Job(wanted, 1) as job:
            rank = job.finish()[0]
        self.assertEqual((rank.code, rank.err), (0, ""))
        self.assertIn("aten::addmm", rank.out)

    def test_monitors_write_metrics(self):
        monitor = {"enabled": True, "output_path": self.file("out"), "job_name": "job"}
        self.run_gpt2(run={"steps": 4, "metrics_jsonl": self.file("m.jsonl")},
                      engine={"csv_monitor": monitor, "tensorboard": monitor})
        metrics = self.json_lines("m.jsonl")
        with open(self.file("out", "job", "Train_Samples_train_loss.csv")) as stream:
            rows = list(csv.reader(stream))
        self.assertEqual(rows[0], ["step", "Train_Samples_train_loss"])
        self.assertEqual([(int(samples), float(loss)) for samples, loss in rows[1:]],
                         [(line["samples"], line["loss"]) for line in metrics])
        (file,) = glob.glob(self.file("out", "job", "events.out.tfevents.*"))
        scalars = tensorboard_scalars(file)
        for tag, key in (("train_loss", "loss"), ("lr", "lr")):
            found = [(step, value) for step, name, value in scalars if name == "Train/Samples/" + tag]
            self.assertEqual([step for step, _ in found], [line["samples"] for line in metrics])
            for (_, value), line in zip(found, metrics):
                self.assertAlmostEqual(value, line[key], places=5)

    def test_prints_breakdown_and_communication(self):
        out = self.run_gpt2(engine={"wall_clock_breakdown": True, "steps_per_print": 3,
                                    "comms_logger": {"enabled": True}})
        lines = re.findall(r"step (\d+): data ([\d.]+) ms, forward ([\d.]+) ms, backward ([\d.]+) ms, "
                           r"update ([\d.]+) ms; passes without waiting ([\d.]+) ms; mean step ([\d.]+) ms", out)
        self.assertEqual([line[0] for line in lines], ["3", "6"])
        for line in lines:
            data, forward, backward, update, _, step = map(float, line[1:])
            self.assertAlmostEqual(data + forward + backward + update, step, delta=0.05 * step + 0.5)
        self.assertRegex(out, r"communication +size +calls")
        calls = sum(int(count) for count in re.findall(r"all_reduce +[\d.]+ \w+ +(\d+) ", out))
        self.assertGreaterEqual(calls, 6)

    def test_flops_profiler_counts_modules(self):
        self.run_gpt2(engine={"flops_profiler": {"enabled": True, "profile_step": 2, "output_file": self.file("f.txt"),
                                                 "top_modules": 2}})
        with open(self.file("f.txt")) as stream:
            text = stream.read()
        self.assertIn("operations of step 2 on rank 0 of 2", text)
        self.assertIn("%.2f GFLOP (" % (forward_flops(BATCH // 2) / 1e9), text)
        # c_fc multiplies by 256 x 1024 for each token. Attention has two products of 64 x 64 x 64 for each head.
        tokens = BATCH // 2 * BLOCK
        row = next(line for line in text.splitlines() if line.strip().startswith("c_fc"))
        self.assertIn("%.2f MFLOP" % (2 * tokens * 256 * 1024 / 1e6), row)
        row = next(line for line in text.splitlines() if line.strip().startswith("attn"))
        attention = 2 * tokens * 256 * (768 + 256) + 2 * 2 * tokens * 64 * 256
        self.assertIn("%.2f MFLOP" % (attention / 1e6), row)

    def test_flops_profiler_assigns_products_to_layers(self):
        decoder = {"type": "decoder", "model_type": "llama", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 160,
                   "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": BLOCK}
        outputs = {"q_proj": 64, "k_proj": 32, "v_proj": 32, "o_proj": 64, "gate_proj": 160, "up_proj": 160}
        for precision in "fp32", "bf16":
            self.run_gpt2(world=1, model=decoder, engine={
                **({"bf16": {"enabled": True}} if precision == "bf16" else {}), "flops_profiler": {"enabled": True, "profile_step": 2,
                                                                 "output_file": self.file(precision)}})
            with open(self.file(precision)) as stream:
                rows = [line.split() for line in stream]
            found = [(row[0], row[4:6]) for row in rows if row and row[0] in outputs]
            self.assertEqual([name for name, _ in found], 2 * list(outputs))
            for name, flops in found:
                self.assertEqual(flops[0], "%.2f" % (2 * BATCH * BLOCK * 64 * outputs[name] / 1e6), (precision, name))

    def test_compares_precisions(self):
        out = self.run_gpt2(run={"mode": "compare_precision", "steps": 3})
        rows = {line[:18].strip(): line[18:].split() for line in out.splitlines() if len(line) > 40}
        self.assertEqual(rows[""], ["fp32", "bf16", "fp16"])
        parameters = rows["parameters"]
        self.assertEqual(float(parameters[0]), 2 * float(parameters[2]), "MiB in 32 bit and in 16")
        for loss in rows["loss at the end"]:
            self.assertAlmostEqual(float(loss), 5.5, delta=1)


if __name__ == "__main__":
    unittest.main()
