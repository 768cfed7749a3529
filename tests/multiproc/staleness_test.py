"""Tests jobs that can lose a rank and continue: training with a parameter server and bounded staleness, and programs
that allow it."""

import os
import signal
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from launcher_case import FASHION_MNIST, TWO_BY_TWO, LauncherCase, bash, main  # noqa: E402

GOES_ON = r"rank %d \(%s\) was killed by SIGKILL; the job continues without it"
GIVEN_UP = (r"rank %d \(%s\) was killed by SIGKILL \(it did not answer, and the others went on without it\); "
            "the job continues without it")
READY = """echo '{"event":"ready","loss_tolerated":true}' >&$DSLAUNCH_STATUS_FD; """


class Staleness(LauncherCase):
    def train(self, servers, steps, *options, settings=()):
        job = self.start(*TWO_BY_TWO, *options, "train", FASHION_MNIST, "--steps", steps,
                         *(word for setting in settings for word in ("--set", setting)),
                         "--set", "engine.parallel.mode=parameter_server",
                         "--set", f"engine.parallel.servers={servers}", "--set", "engine.parallel.staleness=2",
                         "--set", "engine.steps_per_print=20")
        self.wait_for_output(job, r"step 20/", timeout_s=120)
        return job

    def kill(self, *ranks, by=signal.SIGKILL):
        processes = {process.environ.get("RANK"): process.pid for process in self.leftovers()
                     if process.name == "dslaunch-train"}
        for rank in ranks:
            os.kill(processes[str(rank)], by)

    def test_tolerates_lost_worker_and_reports_it_once(self):
        job = self.train(servers=2, steps=600)
        self.kill(3)
        self.assert_code(0, self.wait(job, 120), job)
        self.assertEqual(job.output.count("the job continues without it"), 1, job.output)
        self.assert_prints(job, GOES_ON % (3, "node1"))
        self.assert_prints(job, r"step 600/600", r"test accuracy \d")
        self.assert_presentable(job)
        self.assert_nothing_left()

    def test_stalled_worker_is_ended_when_others_are_done(self):
        job = self.train(2, 600, settings=["run.collective_timeout_s=2"])
        self.kill(3, by=signal.SIGSTOP)
        self.assert_code(0, self.wait(job, 120), job)
        self.assert_prints(job, r"rank 3 \(node1, pid \d+\) was stopped by SIGSTOP; the others wait for it for some time, "
                           "and then go on without it", r"rank 3 is lost; training continues without it",
                           GIVEN_UP % (3, "node1"), r"step 600/600", r"test accuracy \d", r"3 of 4 ranks on 2 nodes succeeded")
        self.assert_nothing_left()

    def test_tolerates_lost_worker_without_shared_memory(self):
        """Without shared memory, ranks use the agents' connections, as on the nodes of a real job."""
        job = self.train(2, 600, "--env", "DSLAUNCH_SHM_DISABLE=1")
        self.kill(3)
        self.assert_code(0, self.wait(job, 120), job)
        self.assert_prints(job, GOES_ON % (3, "node1"), r"step 600/600", r"test accuracy \d")
        self.assert_nothing_left()
        job = self.train(2, 10_000_000, "--env", "DSLAUNCH_SHM_DISABLE=1")
        self.kill(0)
        self.assert_code(137, self.wait(job, 30), job)
        self.assert_nothing_left()

    def test_tolerates_loss_of_all_workers_without_parts(self):
        job = self.train(servers=1, steps=400)
        self.kill(2, 3, 1)
        self.assert_code(0, self.wait(job, 120), job)
        self.assert_prints(job, *(GOES_ON % each for each in ((1, "node0"), (2, "node1"), (3, "node1"))), r"step 400/400")
        self.assert_nothing_left()

    def test_lost_server_ends_the_job(self):
        job = self.train(servers=2, steps=10_000_000)
        self.kill(1)
        self.assert_code(137, self.wait(job, 30), job)
        self.assert_prints(job, r"rank 1\b", "SIGKILL")
        self.assertNotRegex(job.output, "(continues|goes on) without")
        self.assert_nothing_left()

    def test_server_lost_after_a_worker_is_the_cause(self):
        job = self.train(servers=1, steps=10_000_000)
        self.kill(2)
        self.wait_for_output(job, GOES_ON % (2, "node1"))
        self.kill(0)
        self.assert_code(137, self.wait(job, 30), job)
        self.assert_prints(job, r"rank 0 \(node0, local rank 0\) was killed by SIGKILL")
        self.assert_nothing_left()

    def test_loss_of_all_ranks_fails_the_job(self):
        job = self.train(servers=1, steps=10_000_000)
        self.kill(3, 2, 1, 0)
        self.assert_code(137, self.wait(job, 30), job)
        self.assert_prints(job, "SIGKILL")
        self.assert_nothing_left()

    def test_program_may_declare_its_loss_tolerated(self):
        code, job = self.run_job(*TWO_BY_TWO, *bash(READY + "[ $RANK = 0 ] || kill -KILL $$; sleep 1"))
        self.assert_code(0, code, job)
        self.assert_prints(job, GOES_ON % (1, "node0"), GOES_ON % (2, "node1"), GOES_ON % (3, "node1"))
        self.assert_nothing_left()

    def test_program_may_declare_a_rank_lost(self):
        lost = """echo '{"event":"lost","rank":%d}' >&$DSLAUNCH_STATUS_FD; """
        code, job = self.run_job(*TWO_BY_TWO, *bash(READY + "[ $RANK = 0 ] || sleep 60; sleep 1; " + lost % 1 + lost % 2 +
                                                    lost % 3 + "sleep 1"))
        self.assert_code(0, code, job)
        self.assert_prints(job, *(GIVEN_UP % each for each in ((1, "node0"), (2, "node1"), (3, "node1"))),
                           r"1 of 4 ranks on 2 nodes succeeded")
        self.assert_nothing_left()

    def test_ignores_declared_loss_of_rank_that_must_live(self):
        code, job = self.run_job(*TWO_BY_TWO, *bash("echo '{\"event\":\"lost\",\"rank\":3}' >&$DSLAUNCH_STATUS_FD; sleep 2"))
        self.assert_code(0, code, job)
        self.assertNotRegex(job.output, "(continues|goes on) without")
        self.assert_nothing_left()

    def test_first_loss_is_cause_if_no_rank_is_left(self):
        code, job = self.run_job(*TWO_BY_TWO, *bash(READY + "[ $RANK = 2 ] || sleep 1; kill -KILL $$"))
        self.assert_code(137, code, job)
        self.assert_prints(job, r"rank 2 \(node1, local rank 0\) was killed by SIGKILL")
        self.assert_nothing_left()

    def test_exit_code_fails_job_despite_tolerated_loss(self):
        code, job = self.run_job(*TWO_BY_TWO, *bash(READY + "[ $RANK != 2 ] || exit 5; sleep 60"))
        self.assert_code(5, code, job)
        self.assert_nothing_left()

    def test_tolerates_loss_only_of_ranks_that_allow_it(self):
        code, job = self.run_job(*TWO_BY_TWO, *bash("[ $RANK != 1 ] || { " + READY + "sleep 60; }; sleep 1; "
                                                    "[ $RANK != 3 ] || kill -KILL $$; sleep 60"))
        self.assert_code(137, code, job)
        self.assert_prints(job, r"rank 3\b", "SIGKILL")
        self.assert_nothing_left()


if __name__ == "__main__":
    main()
