"""Tests that the engine computes the same on GPUs as on CPUs: ZeRO 3, offload, pipelines with every schedule, their
combinations, and recomputation.
Compares every loss and gradient norm with one rank on the CPU. Skipped without a GPU. With fewer GPUs than ranks, a
cell has fewer ranks. Pipelines with more stages than GPUs are left out, which is reported.

On the stand-in, a cell ends at a race, a read of memory in use, or different collectives on ranks. The stand-in also
counts the waits of a step and the bytes that the step sends."""

import array
import collections
import json
import os
import random
import re
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "trainer"))
from gpu_case import SKIPPED, gpus, is_standin, why_not  # noqa: E402
from inputs import write_text  # noqa: E402
from spawn import Job, recipe, run_with_metrics  # noqa: E402

FULL = os.environ.get("DSLAUNCH_TEST_FULL") == "1"
STEPS = 5
WITHIN = 1e-4  # largest relative deviation in fp32
WITHIN_16 = 2e-3  # the device has another attention kernel, which rounds 16-bit numbers differently
STEADY = "3-4"  # earlier steps include setup, and the last one reads its losses
GPT2 = {"type": "gpt2", "vocab_size": 256, "n_positions": 16, "n_embd": 32, "n_layer": 4, "n_head": 2,
        "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
BF16 = {"bf16": {"enabled": True}}
FP16 = {"fp16": {"enabled": True, "initial_scale_power": 8}}
# Nothing is kept from the forward pass to the backward pass.
RELEASED = {"stage3_max_reuse_distance": 10000, "stage3_prefetch_bucket_size": 10000}
CPU = {"device": "cpu", "pin_memory": True}
NVME = {"device": "nvme", "nvme_path": tempfile.gettempdir()}


def zero(stage, **more):
    return {"zero_optimization": {"stage": stage, **more}}


def zero3(**more):
    return zero(3, stage3_param_persistence_threshold=0, **more)


def pipeline(stages, accumulation=4, **more):
    return {"pipeline": {"stages": stages, **more}, "gradient_accumulation_steps": accumulation}


RECOMPUTED = {"activation_checkpointing": {"number_checkpoints": 2}}
# Each cell is a number of ranks and an engine configuration. The cells in ALSO run with DSLAUNCH_TEST_FULL=1.
CELLS = {
    "zero 3, small parameters whole": (2, zero(3)),
    "zero 3, accumulated": (2, {**zero3(), "gradient_accumulation_steps": 2}),
    "zero 3, bf16, recomputed": (2, {**zero3(), **BF16, **RECOMPUTED}),
    "zero 3, all offloaded": (2, zero3(offload_param=CPU, offload_optimizer=CPU)),
    "zero 3, parameters offloaded": (2, zero3(offload_param=CPU)),
    "zero 3, bf16, large parameters offloaded": (2, {**zero(3, offload_param=CPU, stage3_param_persistence_threshold=2000),
                                                     **BF16}),
    "zero 2, bf16, offloaded in pieces": (2, {**zero(2, offload_optimizer=CPU, sub_group_size=1000), **BF16}),
    "zero 3, bf16, in files": (2, {**zero3(offload_param=NVME, offload_optimizer=NVME), **BF16}),
    "bf16 summed in fp32": (2, {**BF16, "communication_data_type": "fp32"}),
    "gpipe, fp16": (2, {**pipeline(2, schedule="gpipe"), **FP16}),
    "1f1b, recomputed": (2, pipeline(2, activation_checkpoint_interval=1)),
    "interleaved, bf16": (2, {**pipeline(2, schedule="interleaved", virtual_stages=2), **BF16}),
    "zero bubble": (2, pipeline(2, schedule="zb-h1")),
    "2 x 2, zero 3": (4, {**pipeline(2, 2), **zero3()}),
}
ALSO = {
    "zero 3, 1 rank": (1, zero3()),
    "zero 3, 4 ranks": (4, zero3()),
    "zero 3, fp16": (2, {**zero3(), **FP16}),
    "zero 1, 4 ranks": (4, zero(1)),
    "recomputed": (1, RECOMPUTED),
    "all-reduce in place of reduce-scatter": (2, zero(2, reduce_scatter=False)),
    "1f1b, 4 stages": (4, pipeline(4)),
    "1f1b, 4 stages, fp16": (4, {**pipeline(4), **FP16}),
    "2 x 2, zero 1": (4, {**pipeline(2, 2), **zero(1)}),
    "2 x 2, zero 2, bf16": (4, {**pipeline(2, 2), **zero(2), **BF16}),
    "interleaved, 4 ranks": (4, pipeline(2, schedule="interleaved", virtual_stages=2)),
    "zero bubble, bf16, recomputed": (2, {**pipeline(2, schedule="zb-h1", activation_checkpoint_interval=1), **BF16}),
}


class EngineCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        cls.text = os.path.join(cls.folder, "text.txt")
        write_text(cls.text, 20000)

    def recipe_of(self, engine, device, run=None):
        wanted = recipe(optimizer={"type": "AdamW", "params": {"lr": 0.002}},
                        engine={"train_batch_size": 24, "gradient_clipping": 1.0, **engine},
                        run={"steps": STEPS, "seed": 3, "device": device, **(run or {})})
        return dict(wanted, model=GPT2, data={"type": "text", "path": self.text, "val_fraction": 0.02})

    def run_on(self, device, ranks, engine, run=None, **environment):
        os.environ.update(environment)
        try:
            return run_with_metrics(self.recipe_of(engine, device, run), ranks)
        finally:
            for name in environment:
                del os.environ[name]

    def has_room_for(self, ranks):
        if ranks <= gpus():
            return True
        print("left out: %d ranks on %d GPUs" % (ranks, gpus()), flush=True)
        return False

    def counts_of(self, ranks, engine, **environment):
        """Returns the requests of each step to each rank's device: a list of steps for each rank."""
        counts = os.path.join(self.folder, "counts")
        self.run_on("cuda", ranks, engine, STANDIN_COUNTS=counts, **environment)
        found = []
        for rank in range(ranks):
            with open("%s.%d" % (counts, rank)) as lines:
                found.append([json.loads(line) for line in lines])
            os.unlink("%s.%d" % (counts, rank))
        return found


class Engine(EngineCase):
    def test_matches_cpu(self):
        references = {}
        for name, (ranks, engine) in {**CELLS, **(ALSO if FULL else {})}.items():
            if "pipeline" not in engine:
                ranks = min(ranks, gpus())
            if not self.has_room_for(ranks):
                continue
            with self.subTest(name):
                precision = next((key for key in ("bf16", "fp16") if key in engine), "fp32")
                if precision not in references:
                    references[precision] = self.run_on("cpu", 1, {"bf16": BF16, "fp16": FP16}.get(precision, {}))[1]
                ours = self.run_on("cuda", ranks, engine)[1]
                found = max(abs(a[key] - b[key]) / abs(b[key])
                            for a, b in zip(ours, references[precision], strict=True) for key in ("loss", "grad_norm"))
                print("%-40s %d ranks, within %.0e" % (name, ranks, found), flush=True)
                self.assertLessEqual(found, WITHIN if precision == "fp32" else WITHIN_16, (ours, references[precision]))

    def test_delayed_streams_give_same_results(self):
        if not is_standin():
            self.skipTest("a GPU has the delays it has")
        if gpus() < 2:
            self.skipTest("takes two GPUs")
        for name, engine in (("zero 3, offloaded", zero3(offload_param=CPU, offload_optimizer=CPU)),
                             ("zero 2, bf16, offloaded in pieces",
                              {**zero(2, offload_optimizer=CPU, sub_group_size=1000), **BF16}),
                             ("interleaved", pipeline(2, schedule="interleaved", virtual_stages=2))):
            with self.subTest(name):
                plain = self.run_on("cuda", 2, engine)[1]
                late = self.run_on("cuda", 2, engine, STANDIN_DELAY_US="300", STANDIN_DELAY_SEED="20261124")[1]
                for key in ("loss", "grad_norm"):
                    self.assertEqual([step[key] for step in late], [step[key] for step in plain])

    def test_resumes_on_other_kind_of_device(self):
        if gpus() < 2:
            self.skipTest("takes two GPUs")
        for name, engine in (("zero 3", zero3()), ("pipeline", pipeline(2))):
            with self.subTest(name):
                straight = self.run_on("cpu", 2, engine)[1]
                for first, second in (("cuda", "cpu"), ("cpu", "cuda")):
                    folder = tempfile.mkdtemp(dir=self.folder)
                    run = {"checkpoint_dir": folder}
                    self.run_on(first, 2, engine, {**run, "steps": 3})
                    rest = self.run_on(second, 2, engine, run)[1]
                    self.assertEqual(len(rest), STEPS - 3)
                    for ours, theirs in zip(rest, straight[3:], strict=True):
                        self.assertLessEqual(abs(ours["loss"] - theirs["loss"]), WITHIN * theirs["loss"])

    def test_warns_that_nccl_does_not_encrypt(self):
        if gpus() < 2:
            self.skipTest("takes two GPUs")
        said = "NCCL exchanges between nodes in clear text; see SECURITY.md\n"
        for ranks_of_a_node in (1, 2):
            place = {rank: {"CUDA_VISIBLE_DEVICES": str(rank) if ranks_of_a_node == 1 else "0,1"} for rank in range(2)}
            with Job(self.recipe_of({}, "cuda"), 2, ranks_of_a_node, env_of_rank=place) as job:
                first, second = job.finish()
            self.assertEqual((first.code, second.code), (0, 0), first.err + second.err)
            self.assertEqual((first.err, second.err), (said * (2 - ranks_of_a_node), ""))


class Masks(EngineCase):
    """Attention that ends with documents or a sliding window, with rows of the mask that are not aligned."""

    LENGTH = 13
    WITHIN_16 = 5e-3  # rounding to bf16 moves the gradient norms of these models by as much
    DECODER = {"type": "decoder", "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32,
               "head_dim": 8, "intermediate_size": 48, "max_position_embeddings": 32, "vocab_size": 256}
    WINDOW = {**DECODER, "model_type": "mistral", "sliding_window": 5}
    MODELS = {"gpt2, documents": (GPT2, True), "llama, documents": ({**DECODER, "model_type": "llama"}, True),
              "mistral, window": (WINDOW, False), "mistral, window and documents": (WINDOW, True)}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tokens = os.path.join(cls.folder, "tokens.bin")
        rng = random.Random(9)
        with open(cls.tokens, "wb") as file:
            array.array("H", (0 if rng.random() < 0.1 else rng.randrange(1, 256) for _ in range(20000))).tofile(file)

    def masked(self, name, engine, device, **model):
        section, documents = self.MODELS[name]
        data = {"type": "tokens", "path": self.tokens, "block_size": self.LENGTH, "documents": documents,
                **({"eos_token_id": 0} if documents else {})}
        return dict(self.recipe_of(engine, device), model={**section, **model}, data=data)

    def test_masks_match_cpu(self):
        for name in self.MODELS:
            also = (("fp16", FP16), ("fp32", {**zero3(), **RECOMPUTED}),
                    ("bf16", {"torch_autocast": {"enabled": True, "dtype": "bfloat16"}}))
            is_whole = FULL or name == "mistral, window and documents"
            for precision, engine in (("fp32", {}), ("bf16", BF16), *(also if is_whole else ())):
                with self.subTest(name, **engine):
                    ours, theirs = (run_with_metrics(self.masked(name, engine, device), 1)[1] for device in ("cuda", "cpu"))
                    found = max(abs(a[key] - b[key]) / abs(b[key])
                                for a, b in zip(ours, theirs, strict=True) for key in ("loss", "grad_norm"))
                    print("%-40s %s within %.0e" % (name, precision, found), flush=True)
                    self.assertLessEqual(found, WITHIN if precision == "fp32" else self.WITHIN_16)

    def test_layers_share_mask(self):
        if not is_standin():
            self.skipTest("only the stand-in counts")
        for name, (section, _) in self.MODELS.items():
            with self.subTest(name):
                key = "n_layer" if section["type"] == "gpt2" else "num_hidden_layers"
                counts = []
                for layers in (1, 3):
                    wanted = self.masked(name, BF16, "cuda", **{key: layers})
                    with Job(wanted, 1, env_of_rank={0: {"STANDIN_TRACE": "1"}}) as job:
                        rank, = job.finish()
                    self.assertEqual(rank.code, 0, rank.err[-2000:])
                    operations = collections.Counter(re.findall(r"^standin: (\S+) in stream", rank.err, re.MULTILINE))
                    counts.append([operations["aten::" + name] for name in ("masked_fill_", "logical_not", "where")])
                print("%-40s %s" % (name, counts), flush=True)
                self.assertEqual(counts[0][:2], counts[1][:2])
                # LibTorch would make a mask of numbers by "where"; the softmax of each layer has another "where".
                self.assertEqual(counts[1][2] - counts[0][2], 2 * STEPS)


class Counts(EngineCase):
    """Tests the cost of a step on the stand-in."""

    def setUp(self):
        if not is_standin():
            self.skipTest("only the stand-in counts")
        if gpus() < 2:
            self.skipTest("takes two GPUs")

    def test_zero_3_steps_do_not_wait(self):
        self.run_on("cuda", 2, {**zero3(), **BF16}, STANDIN_NO_SYNC=STEADY)

    def copies_beside(self, engine):
        """Returns the number of copies that a rank makes in streams without computation."""
        with Job(self.recipe_of(engine, "cuda"), 1, env_of_rank={0: {"STANDIN_TRACE": "1"}}) as job:
            rank, = job.finish()
        self.assertEqual(rank.code, 0)
        given = re.findall(r"^standin: (\S+) in stream (\d+)", rank.err, re.MULTILINE)
        computing = {stream for name, stream in given if name == "aten::native_layer_norm"}
        copies = sum(name == "aten::copy_" and stream not in computing for name, stream in given)
        print("%d copies in streams of their own" % copies, flush=True)
        return copies

    def test_copies_parameters_from_host_while_computing(self):
        engine = zero3(offload_param=CPU, offload_optimizer=CPU, **RELEASED)
        self.assertGreater(self.copies_beside(engine), 2 * STEPS * GPT2["n_layer"])  # in forward and backward passes

    def test_copies_weights_while_gradients_arrive(self):
        engine = {**zero(2, offload_optimizer=CPU, sub_group_size=1000, reduce_bucket_size=1000), **BF16}
        self.assertGreater(self.copies_beside(engine), 2 * STEPS * 4 * GPT2["n_layer"])  # matrices, and their rounding

    def test_sent_bytes_match_zero_paper(self):
        """Checks section 7 of the paper for P parameters. Stages 0 to 2 send 2 P, because an all-reduce is a
        reduce-scatter and an all-gather. Stage 3 sends 3 P."""
        parameters, ranks = self.parameters(), 2
        for stage, times in ((0, 2), (1, 2), (2, 2), (3, 3)):
            with self.subTest(stage=stage):
                steps = self.counts_of(ranks, zero3(**RELEASED) if stage == 3 else zero(stage))[0]
                # The size of an all-gather counts only a rank's input, which is its part.
                moved = sum(size * (2 if "all_reduce" in name else ranks if "all_gather" in name else 1)
                            for name, (_, size) in steps[3]["collectives"].items())
                print("stage %d: %s" % (stage, steps[3]["collectives"]), flush=True)
                self.assertLessEqual(abs(moved / (4 * parameters) - times), 0.1 * times)

    def parameters(self):
        vocabulary, positions, width, layers = (GPT2[key] for key in ("vocab_size", "n_positions", "n_embd", "n_layer"))
        block = 12 * width * width + 13 * width
        return (vocabulary + positions) * width + layers * block + 2 * width

    def test_compute_time_is_measured_on_the_device(self):
        """Delays the operations, so that the host finishes long before the device."""
        steps = self.run_on("cuda", 1, {}, STANDIN_DELAY_US="3000")[1]
        print("compute_s, step_s: %s" % [(step["compute_s"], step["step_s"]) for step in steps], flush=True)
        for step in steps[2:]:
            self.assertLess(step["compute_s"], step["step_s"])
            self.assertGreater(step["compute_s"], step["step_s"] / 2)

    def test_offloaded_weights_return_without_waiting(self):
        engine = {**zero(2, offload_optimizer=CPU, sub_group_size=1000, reduce_bucket_size=1000), **BF16}
        for steps in self.counts_of(2, engine, STANDIN_STEP_OPERATION="aten::embedding_dense_backward"):
            waits, (copies, size) = steps[3]["waits"], steps[3]["copies"]["to the device"]
            print("in pieces: %d copies to the device of %d bytes, waits %s" % (copies, size, waits), flush=True)
            self.assertGreater(copies, 10)
            self.assertLessEqual(size, 1.1 * 4 * self.parameters() / 2)  # half of the parameters, in their own dtype
            self.assertNotIn("synchronize a stream", waits)
            self.assertLessEqual(waits.get("copy_ to the device", 0), 1)  # the batch

    def test_stage_waits_once_per_batch(self):
        """Checks that the number of waits does not depend on the number of micro-batches."""
        def waits(accumulation):
            steps = self.counts_of(2, pipeline(2, accumulation), STANDIN_STEP_OPERATION="aten::_fused_adamw_")
            # Waits by events measure the step's times, and do not occur if the device is already done.
            return [{why: number for why, number in rank[3]["waits"].items() if "event" not in why} for rank in steps]
        few, many = waits(2), waits(6)
        print("waits of the stages in a batch: %s" % few, flush=True)
        self.assertEqual(few, many)


if __name__ == "__main__":
    if why_not():
        print("SKIPPED: " + why_not())
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
