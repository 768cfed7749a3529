"""What the ranks print: whole tagged lines on the terminal, every byte in the log files."""

import hashlib
import os
import pathlib
import re
import subprocess
import sys
import time

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from launcher_case import DSLAUNCH, MARK, TWO_BY_TWO, Job, LauncherCase, bash, main  # noqa: E402

HELLO = bash('echo "out of $RANK"; echo "err of $RANK" >&2')


class Output(LauncherCase):
    def log(self, rank, stream, folder="logs"):
        path, = (self.folder / folder).glob(f"**/rank_{rank}/{stream}.log")
        return path

    def test_rank_0_is_shown_by_default(self):
        code, job = self.run_job(TWO_BY_TWO, HELLO)
        self.assert_code(0, code, job)
        self.assert_says(job, r"(?m)^\[[^\]\n]+:0\] out of 0$", r"(?m)^\[[^\]\n]+:0\] err of 0$")
        for rank in (1, 2, 3):
            self.assertNotIn(f"of {rank}", job.output)

    def test_tee_chooses_the_ranks(self):
        for tee, shown in (("all", {0, 1, 2, 3}), ("1,3", {1, 3}), ("none", set())):
            with self.subTest(tee=tee):
                code, job = self.run_job(TWO_BY_TWO, "--tee", tee, HELLO)
                self.assert_code(0, code, job)
                found = {int(rank) for rank in re.findall(r"(?m)^\[[^\]\n]+:(\d+)\] out of \1$", job.output)}
                self.assertEqual(shown, found, job.output)

    def test_what_is_asked_for_goes_to_stdout_only(self):
        # `dslaunch ... > file` must hold the ranks' stdout; notices of dslaunch are not in the way.
        code, job = self.run_job(TWO_BY_TWO, HELLO)
        self.assert_code(0, code, job)
        self.assertIn("out of 0", job.stdout)

    def test_lines_of_many_ranks_do_not_mix(self):
        script = 'for i in $(seq 300); do printf "%s-%s-" "$RANK" "$i"; printf "%060d\\n" "$i"; done'
        code, job = self.run_job(TWO_BY_TWO, "--tee", "all", bash(script))
        self.assert_code(0, code, job)
        for rank in range(4):
            lines = re.findall(rf"(?m)^\[[^\]\n]+:{rank}\] {rank}-(\d+)-(\d{{60}})$", job.output)
            self.assertEqual(list(range(1, 301)), [int(number) for number, _ in lines], f"rank {rank}")

    def test_a_last_line_without_its_newline_is_shown(self):
        code, job = self.run_job(TWO_BY_TWO, bash("printf 'no newline at end'"))
        self.assert_code(0, code, job)
        self.assert_says(job, r"\[[^\]\n]+:0\] no newline at end")

    def test_a_partial_line_is_shown_while_the_rank_waits(self):
        job = self.start(TWO_BY_TWO, bash("printf 'password: '; exec sleep 30"))
        self.wait_for_output(job, "password: ", timeout_s=5)
        job.signal(2)
        self.wait(job, 8)

    def test_log_files_are_complete(self):
        # 6 MB of what no line buffer likes, on both streams, with the process killed right after.
        script = """import hashlib, os, sys
rank = int(os.environ["RANK"])
for stream in (1, 2):
    data = os.urandom(1000003) * 6
    open(os.environ["FOLDER"] + f"/sum.{rank}.{stream}", "w").write(hashlib.sha256(data).hexdigest())
    view = memoryview(data)
    while view:
        view = view[os.write(stream, view):]
if rank == 2:
    os.kill(os.getpid(), 9)
"""
        (self.folder / "writer.py").write_text(script)
        code, job = self.run_job(TWO_BY_TWO, "--tee", "none", "--log_dir", self.folder / "logs",
                                 "python3", self.folder / "writer.py", env={"FOLDER": str(self.folder)})
        self.assert_code(137, code, job)
        checked = 0
        for number, stream in ((1, "stdout"), (2, "stderr")):
            for rank in range(4):
                sum_file = self.folder / f"sum.{rank}.{number}"
                data = self.log(rank, stream).read_bytes()
                if len(data) == 6 * 1000003 or rank == 2:  # another rank may have been ended in the middle
                    self.assertEqual(sum_file.read_text(), hashlib.sha256(data).hexdigest(), f"{rank} {stream}")
                    checked += 1
        self.assertGreaterEqual(checked, 2)

    def test_log_files_of_a_job_that_ended_well(self):
        script = 'seq -f "$RANK %.0f" 200000; seq -f "e $RANK %.0f" 1000 >&2'
        code, job = self.run_job(TWO_BY_TWO, "--log_dir", self.folder / "logs", bash(script))
        self.assert_code(0, code, job)
        for rank in range(4):
            self.assertEqual("".join(f"{rank} {i}\n" for i in range(1, 200001)), self.log(rank, "stdout").read_text())
            self.assertEqual("".join(f"e {rank} {i}\n" for i in range(1, 1001)), self.log(rank, "stderr").read_text())
            mode = self.log(rank, "stdout").parents[0].stat().st_mode & 0o077
            self.assertEqual(0, mode, "others can look into the log folder")

    def test_logs_lie_in_the_state_folder_unless_told_otherwise(self):
        code, job = self.run_job(TWO_BY_TWO, HELLO)
        self.assert_code(0, code, job)
        self.assertEqual("out of 3\n", self.log(3, "stdout", "state").read_text())

    def test_a_reader_that_stalls_does_not_stall_the_job(self):
        read_end, write_end = os.pipe()
        env = {**self.base_environment(), MARK: self.mark}
        with os.fdopen(read_end, "rb") as reader:
            job = Job(lambda **files: self.popen(
                [str(word) for word in (DSLAUNCH, *TWO_BY_TWO, "--tee", "all", "--log_dir",
                                        self.folder / "logs", *bash('seq 1000000; touch done.$RANK'))],
                env, str(self.folder), **{**files, "stdout": write_end}), self.folder)
            self.last_job = job
            os.close(write_end)
            self.wait_for_files(job, "done.*", 4, timeout_s=30)
            while reader.read(1 << 20):
                pass
        self.assert_code(0, self.wait(job, 20), job)
        self.assertEqual(6888896, self.log(3, "stdout").stat().st_size)
        self.assert_nothing_left()

    def test_stdout_that_is_closed_early_ends_nothing_badly(self):
        # dslaunch ... | head -n 1
        env = {**self.base_environment(), MARK: self.mark}
        script = "for i in $(seq 60); do echo $i; sleep 0.05; done"
        job = Job(lambda **files: self.popen(
            [DSLAUNCH, *TWO_BY_TWO, *bash(script)], env, str(self.folder),
            **{**files, "stdout": subprocess.PIPE}), self.folder)
        self.last_job = job
        job.process.stdout.readline()
        job.process.stdout.close()
        self.wait(job, 20)
        self.assert_presentable(job)
        self.assert_nothing_left()

    def test_progress_from_the_status_pipe(self):
        script = """for step in 1 2 3 4; do
            [ "$RANK" != 0 ] || printf '{"event":"step","step":%d,"total_steps":4,"loss":0.%d,"samples_per_s":512}\\n' \
                $step $step >&$DSLAUNCH_STATUS_FD
            sleep 0.4; done"""
        code, job = self.run_job(TWO_BY_TWO, bash(script))
        self.assert_code(0, code, job)
        self.assert_says(job, r"4/4", r"0\.[1234]", r"512")

    def test_an_idle_job_costs_no_cpu(self):
        job = self.start(TWO_BY_TWO, bash("touch up.$RANK; exec sleep 60"))
        self.wait_for_files(job, "up.*", 4)
        time.sleep(0.5)

        def cpu_s():
            ticks = 0
            for process in self.leftovers():
                if process.name.startswith("dslaunch"):
                    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
                    ticks += int(fields[11]) + int(fields[12])
            return ticks / os.sysconf("SC_CLK_TCK")
        before = cpu_s()
        time.sleep(4)
        used_s = cpu_s() - before
        job.signal(2)
        self.wait(job, 8)
        self.assertLess(used_s, 0.4, "dslaunch, two keepers and two agents used this much CPU in 4 s")


if __name__ == "__main__":
    main()
