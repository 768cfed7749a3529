"""Compares the samples that a rank gets, and their tokens, with PyTorch and NumPy."""

import itertools
import os
import struct
import subprocess
import tempfile
import unittest

import numpy as np
from torch.utils.data import BatchSampler, DistributedSampler


def trace(what, cases):
    """Returns one list of numbers for each case."""
    lines = "".join(" ".join(map(str, (what, *case))) + "\n" for case in cases)
    answer = subprocess.run([os.environ["DSLAUNCH_DATA_TRACE"]], text=True, capture_output=True, timeout=60,
                            input=lines)
    if answer.returncode != 0:
        raise AssertionError(answer.stderr)
    return [[int(number) for number in line.split()] for line in answer.stdout.splitlines()]


class SamplerTest(unittest.TestCase):
    def test_indices_match_pytorch(self):
        sizes_and_worlds = [(1, 1), (1, 4), (3, 5), (10, 3), (64, 4), (1001, 7), (60000, 4)]
        cases = [(size, world, rank, shuffle, seed, drop_last, epoch)
                 for (size, world), shuffle, seed, drop_last, epoch in itertools.product(
                     sizes_and_worlds, (0, 1), (0, 42), (0, 1), (0, 3))
                 for rank in {0, world // 2, world - 1}]
        answers = trace("indices", cases)
        self.assertEqual(len(answers), len(cases))
        for case, answer in zip(cases, answers):
            size, world, rank, shuffle, seed, drop_last, epoch = case
            sampler = DistributedSampler(range(size), world, rank, bool(shuffle), seed, bool(drop_last))
            sampler.set_epoch(epoch)
            self.assertEqual(answer, list(sampler), case)


def write_megatron(prefix, sequences, dtype, code):
    """Writes the layout of megatron.core.datasets.indexed_dataset. Two sequences make a document."""
    np.concatenate(sequences).astype(dtype).tofile(prefix + ".bin")
    lengths = np.array([len(sequence) for sequence in sequences], dtype=np.int32)
    pointers = (np.cumsum(lengths) - lengths).astype(np.int64) * np.dtype(dtype).itemsize
    documents = np.array([*range(0, len(sequences), 2), len(sequences)], dtype=np.int64)
    with open(prefix + ".idx", "wb") as index:
        index.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, code, len(sequences), len(documents)))
        for array in (lengths, pointers, documents):
            index.write(array.tobytes())


def expected_batches(tokens, block, world, rank, shuffle, seed, batch_size, first, count):
    """Returns the batches of a DataLoader over the blocks, epoch after epoch."""
    samples = (len(tokens) - 1) // block
    sampler = DistributedSampler(range(samples), world, rank, bool(shuffle), seed)
    batches = []
    epoch = 0
    while len(batches) < first + count:
        sampler.set_epoch(epoch)
        batches += list(BatchSampler(sampler, batch_size, drop_last=False))
        epoch += 1
    numbers = []
    for index in itertools.chain(*batches[first:first + count]):
        block_tokens = tokens[index * block:(index + 1) * block + 1].tolist()
        numbers += block_tokens[:-1] + block_tokens[1:]
    return numbers


class TokensTest(unittest.TestCase):
    def test_batches_match_dataloader_for_every_format(self):
        random = np.random.default_rng(7)
        with tempfile.TemporaryDirectory() as folder:
            files = {}
            tokens = random.integers(0, 50257, 1000)
            tokens.astype(np.uint16).tofile(f"{folder}/nano.bin")
            files["nano.bin"] = tokens
            for name, magic, version, dtype in (("gpt2.bin", 20240520, 1, np.uint16),
                                                ("llama3.bin", 20240801, 7, np.uint32)):
                tokens = random.integers(0, 65536 if dtype == np.uint16 else 128256, 777)
                header = np.zeros(256, dtype=np.int32)
                header[:3] = magic, version, len(tokens)
                with open(f"{folder}/{name}", "wb") as file:
                    file.write(header.tobytes() + tokens.astype(dtype).tobytes())
                files[name] = tokens
            for name, dtype, code in (("small", np.uint16, 8), ("large", np.int32, 4)):
                sequences = [random.integers(0, 60000, length) for length in (300, 1, 0, 77, 128, 5)]
                write_megatron(f"{folder}/{name}", sequences, dtype, code)
                files[name + ".bin"] = np.concatenate(sequences)
            os.mkdir(f"{folder}/shards")
            shards = [[random.integers(0, 60000, length) for length in lengths] for lengths in ((5, 200), (1,), (300,))]
            write_megatron(f"{folder}/shards/b", shards[1], np.int32, 4)
            write_megatron(f"{folder}/shards/a", shards[0], np.uint16, 8)
            shards[2][0].astype(np.uint16).tofile(f"{folder}/shards/c.bin")
            files["shards"] = np.concatenate([np.concatenate(shard) for shard in shards])
            tokens = random.integers(0, 256, 500)
            tokens.astype(np.uint8).tofile(f"{folder}/text")
            files["text"] = tokens

            cases = []
            for name in files:
                for world, shuffle, batch_size, first, prefetch in (
                        (1, 0, 4, 0, 2), (1, 1, 3, 0, 0), (2, 1, 2, 5, 3), (4, 0, 1, 7, 1), (3, 1, 4, 1, 2)):
                    block = 16 if name != "text" else 13
                    for rank in range(world):
                        cases.append((name, block, world, rank, shuffle, 42, batch_size, first, 20, prefetch))
            answers = trace("batches", [("text" if name == "text" else "tokens", f"{folder}/{name}", *rest)
                                        for name, *rest in cases])
            self.assertEqual(len(answers), len(cases))
            for (name, *rest, prefetch), answer in zip(cases, answers):
                self.assertEqual(answer, expected_batches(files[name], *rest), (name, rest, prefetch))


if __name__ == "__main__":
    unittest.main()
