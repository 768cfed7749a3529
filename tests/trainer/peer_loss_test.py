"""A rank that dies takes the others with it within seconds, and each says in one line that it is not the cause."""

import time
import unittest

from spawn import Job, recipe

UNAVAILABLE = 69


class PeerLossTest(unittest.TestCase):
    def check_killed(self, victim):
        with Job(recipe(run={"steps": 10_000_000, "seed": 1}), 4) as job:
            job.wait_for(lambda: '"step"' in job.read(victim, 2), 60, "the first steps are done")
            start = time.monotonic()
            job.processes[victim].kill()
            ranks = job.finish(10)
            self.assertLess(time.monotonic() - start, 5)
            for number, rank in enumerate(ranks):
                if number == victim:
                    self.assertEqual(rank.code, -9)
                    continue
                self.assertEqual(rank.code, UNAVAILABLE, rank.err)
                self.assertRegex(rank.err, r"^dslaunch-train: rank %d: another rank was lost, .*\n$" % number)

    def test_rank_zero_killed(self):
        self.check_killed(0)

    def test_last_rank_killed(self):
        self.check_killed(3)


if __name__ == "__main__":
    unittest.main()
