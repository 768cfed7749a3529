"""The sampler's indices are those of torch.utils.data.DistributedSampler, number for number."""

import itertools
import os
import subprocess
import unittest

from torch.utils.data import DistributedSampler


class SamplerTest(unittest.TestCase):
    def test_indices_equal_pytorchs(self):
        sizes_and_worlds = [(1, 1), (1, 4), (3, 5), (10, 3), (64, 4), (1001, 7), (60000, 4)]
        cases = [(size, world, rank, shuffle, seed, drop_last, epoch)
                 for (size, world), shuffle, seed, drop_last, epoch in itertools.product(
                     sizes_and_worlds, (0, 1), (0, 42), (0, 1), (0, 3))
                 for rank in {0, world // 2, world - 1}]
        answer = subprocess.run(
            [os.environ["DSLAUNCH_SAMPLER_INDICES"]], text=True, capture_output=True, check=True, timeout=60,
            input="".join(" ".join(map(str, case)) + "\n" for case in cases))
        lines = answer.stdout.splitlines()
        self.assertEqual(len(lines), len(cases))
        for case, line in zip(cases, lines):
            size, world, rank, shuffle, seed, drop_last, epoch = case
            sampler = DistributedSampler(range(size), world, rank, bool(shuffle), seed, bool(drop_last))
            sampler.set_epoch(epoch)
            self.assertEqual([int(index) for index in line.split()], list(sampler), case)


if __name__ == "__main__":
    unittest.main()
