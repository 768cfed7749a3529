"""Tests two jobs of one user on the same hosts: the end of one job must not affect the other."""

import re
import signal
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from hosts_case import AS_USER, HostsCase, main  # noqa: E402
from launcher_case import bash  # noqa: E402
from test_hosts import wait_until  # noqa: E402

COUNTS = """touch "$1/$2.up.$RANK"; i=0; until [ -e "$1/$2.go" ]; do i=$((i + 1)); echo "$2 $RANK $i."; sleep 0.02; done
            echo "$2 $RANK end of $i." """


class TwoJobs(HostsCase):
    def start_counting(self, name):
        job = self.start(self.two_by_two(), "--show", "all", "--grace", "1", bash(COUNTS), "-", str(self.folder), name)
        self.wait_for_files(job, f"{name}.up.*", 4)
        return job

    def counted(self, job, rank):
        return [int(number) for number in re.findall(rf"\bstays {rank} (\d+)\.", job.stdout)]

    def check(self, end_other):
        """Ends the second job by `end_other(job)`. The first job's output must have no gap, and the job must
        succeed."""
        stays = self.start_counting("stays")
        other = self.start_counting("goes")
        end_other(other)
        self.wait(other, 10)
        wait_until(lambda: not [process for process in self.leftovers() if "goes" in process.argv], 10,
                   "the other job's ranks are gone")
        before = len(self.counted(stays, 3))
        wait_until(lambda: len(self.counted(stays, 3)) > before + 20, 10, "the first job goes on")
        self.assertTrue(stays.running(), stays.output)
        (self.folder / "stays.go").touch()
        self.assert_code(0, self.wait(stays, 15), stays)
        for rank in range(4):
            last = int(re.search(rf"stays {rank} end of (\d+)\.", stays.stdout)[1])
            self.assertEqual(list(range(1, last + 1)), self.counted(stays, rank), f"lines of rank {rank}")
        self.assert_nothing_left(2)

    def test_interrupt_of_one_job_spares_the_other(self):
        self.check(lambda job: job.signal(signal.SIGINT))

    def test_killed_front_end_of_one_job_spares_the_other(self):
        self.check(lambda job: job.signal(signal.SIGKILL))


class TwoJobsOfAUser(TwoJobs):
    host_options = AS_USER


if __name__ == "__main__":
    main()
