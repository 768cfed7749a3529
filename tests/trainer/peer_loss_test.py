"""Tests that, when a rank dies, the other ranks exit within seconds, and each reports in one line that it is not the
cause. A stalled rank must be declared lost after run.collective_timeout_s."""

import signal
import time
import unittest

from spawn import DEVICE, Job, recipe

UNAVAILABLE, TIMED_OUT = 69, 75


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

    def test_ranks_exit_when_rank_zero_is_killed(self):
        self.check_killed(0)

    def test_ranks_exit_when_last_rank_is_killed(self):
        self.check_killed(3)

    def test_waits_collective_timeout_for_stalled_rank(self):
        for local_world in (2, 1):  # 2 uses shared memory, 1 uses Gloo
            with Job(recipe(run={"steps": 10_000_000, "seed": 1, "collective_timeout_s": 2}), 2, local_world) as job:
                job.wait_for(lambda: '"step"' in job.read(0, 2), 60, "the first steps are done")
                job.processes[1].send_signal(signal.SIGSTOP)
                job.wait_for(lambda: job.processes[0].poll() is not None, 60, "rank 0 has given up")
                self.assertEqual(job.processes[0].returncode, TIMED_OUT, job.read(0, 1))
                # Collectives on a device do not report which rank did not answer.
                late = "another rank did not answer in time" if DEVICE == "cuda" else "rank 1"
                notice = "NCCL exchanges between nodes .*\n" if DEVICE == "cuda" and local_world == 1 else ""
                self.assertRegex(job.read(0, 1), r"^%sdslaunch-train: rank 0: .*%s.*\n$" % (notice, late))


if __name__ == "__main__":
    unittest.main()
