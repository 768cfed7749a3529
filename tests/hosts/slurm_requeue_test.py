"""Tests events that Slurm causes in a running job: a time limit with requeue and resume, and a node whose slurmd is
killed."""

import json
import pathlib
import re
import shlex
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from launcher_case import BUILD, DSLAUNCH, ROOT, bash, main  # noqa: E402
from slurm_case import NOT_RUN, SlurmCase  # noqa: E402
from slurm_cluster import why_not  # noqa: E402
from test_hosts import wait_until  # noqa: E402


def documented_script():
    """Returns the batch script in docs/launching.md."""
    section = (ROOT / "docs" / "launching.md").read_text().partition("\n## Slurm\n")[2].partition("\n## ")[0]
    return re.search(r"```bash\n(#!/bin/bash\n.*?)```", section, re.S)[1]


def replaced(text, *pairs):
    for old, new in pairs:
        assert text.count(old) == 1, f"the documented script has {text.count(old)} times {old}"
        text = text.replace(old, new)
    return text


class Requeue(SlurmCase):
    def slow_recipe(self):
        """Writes a recipe whose ranks mostly wait for their data; returns its path."""
        path = self.folder / "recipe.yaml"  # contains JSON, which is also YAML
        path.write_text(json.dumps(
            {"model": {"type": "mlp", "hidden_size": 16, "num_classes": 4},
             "data": {"type": "plugin", "plugin": str(BUILD / "tests" / "libdslaunch-mistaken-data.so"), "name": "mistaken",
                      "params": {"fetch_ms": 100}},
             "engine": {"train_batch_size": 16, "optimizer": {"type": "Adam", "params": {"lr": 0.02}}}}))
        return path

    def test_time_limit_saves_and_requeued_job_resumes(self):
        steps = self.folder / "steps"
        steps.write_text("1000000\n")
        command = [DSLAUNCH, "--device", "cpu", "--env", "OMP_NUM_THREADS=1", "train", self.slow_recipe()]
        script = replaced(documented_script(),
                          (" --gpus-per-node=8 --time=08:00:00", " --time=1"), ("B:TERM@120", "B:TERM@55"),
                          ("dslaunch train recipe.yaml", f"{shlex.join(map(str, command))} --steps $(cat steps)"),
                          ("/shared/run1", shlex.quote(str(self.folder / "run"))))
        job = self.submit(script, "--ntasks-per-node=1")
        wait_until(lambda: self.cluster.show(job.number).get("Restarts") == "1" or not job.running(), 110,
                   f"Slurm has requeued the job; it wrote:\n{job.output}", poll_s=0.5)
        self.assertEqual("1", self.cluster.show(job.number).get("Restarts"), job.output)
        self.assert_nothing_left(within_s=10)
        last = max(int(re.search(r"\d+", path.name)[0]) for path in pathlib.Path(self.folder / "run").glob("*step*"))
        steps.write_text(f"{last + 5}\n")
        # Slurm would hold the requeued job for two minutes, so the start time is set. It is 3 s in the future, because
        # Slurm distinguishes the starts of a job by the second: in the second of the requeue, slurmd would mistake the
        # next start's credential for the revoked one and end the job with 1.
        self.assertEqual(0, self.cluster.run("scontrol", "update", f"JobId={job.number}", "StartTime=now+3", "TimeLimit=10").returncode)
        end = self.cluster.wait_for_end(job.number, 90)
        self.assertEqual(("COMPLETED", 0), end, job.output + self.cluster.words_on(job.number))
        self.assertRegex(job.output, rf"resum.*{last}")


class LostDaemon(SlurmCase):
    cluster_options = {"slurmd_timeout_s": 8}

    def test_lost_slurmd_ends_job_on_all_nodes(self):
        job = self.batch_script([DSLAUNCH, *bash(': > "$1/up.$RANK"; exec sleep 120'), "-", self.folder],
                                "-N4", "--ntasks-per-node=1", "--no-requeue")
        self.wait_for_files(job, "up.*", 4)
        self.cluster.kill_slurmd("n3")
        self.assertEqual("NODE_FAIL", self.cluster.wait_for_end(job.number, 90)[0], job.output)
        self.assert_nothing_left(within_s=20)


if __name__ == "__main__":
    reason = why_not()
    if reason is not None:
        print(reason)
        sys.exit(NOT_RUN)
    main()
