"""Tests docs/clusters.md: the dslaunch line of each section plans a job on two nodes, in an allocation of that
section's form.

The variables and lists are those that the batch systems document. scontrol, blaunch and flux are stand-ins, because
a dry run starts nothing."""

import json
import os
import re
import shlex
import subprocess
import sys

for folder in ("support", "support/machines"):
    sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/" + folder)
import fake_machine  # noqa: E402
from launcher_case import LauncherCase, main  # noqa: E402
from pages import ROOT, split  # noqa: E402

PAGE = ROOT / "docs" / "clusters.md"


def sections():
    """Yields (machine, line with dslaunch, lines before it) for each section of the page."""
    text = PAGE.read_text(encoding="utf-8")
    _, blocks = split(text)
    lines = text.splitlines()
    for block in blocks:
        heading = next(line for line in reversed(lines[:block.line]) if line.startswith("## "))
        before, line = block.text.split("\ndslaunch ")
        yield heading.removeprefix("## ").split(" ")[0], "dslaunch " + line.strip(), before


class Clusters(LauncherCase):
    def setUp(self):
        super().setUp()
        self.programs = self.folder / "programs"
        self.programs.mkdir()
        (self.folder / "train.py").write_text("")

    def write_program(self, name, text="exit 1"):
        (self.programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.programs / name).chmod(0o755)

    def base_environment(self):
        hidden = re.compile(r"SLURM_|PBS_|LSB_|FLUX_|_VISIBLE_|ZE_")
        kept = {name: value for name, value in super().base_environment().items() if not hidden.match(name)}
        return {**kept, "PATH": f"{self.programs}:{os.environ['PATH']}"}

    def plan(self, machine, **environment):
        """Returns the plan of the machine's line as --json prints it."""
        words = shlex.split(LINES[machine])[1:]
        code, job = self.run_job("--dry_run", "--json", *words, env=environment)
        self.assert_code(0, code, job)
        return json.loads(job.stdout)

    def assert_plan(self, plan, launcher, nodes, slots):
        self.assertEqual(launcher, plan["launcher"])
        self.assertEqual(nodes, [node["host"] for node in plan["nodes"]])
        self.assertEqual([slots] * len(nodes), [node["slots"] for node in plan["nodes"]])
        self.assertTrue(plan["ranks"][0]["argv"][-1].startswith("--local_rank") or plan["ranks"][0]["argv"][-1].endswith("train.py"))

    def slurm(self, nodes, gpus):
        """Returns the variables of an allocation of two nodes with this number of GPUs each."""
        self.write_program("srun")
        self.write_program("scontrol", f"echo 'JobId=7 JobName=x'; echo '     Nodes={nodes} CPU_IDs=0-127 Mem=0 GRES=gpu:{gpus}(IDX:0-{gpus - 1})'")
        return {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": nodes, "SLURM_NODELIST": nodes, "SLURM_TASKS_PER_NODE": "1(x2)",
                "SLURM_JOB_CPUS_PER_NODE": "128(x2)", "SLURM_GPUS_PER_NODE": str(gpus), "SLURM_JOB_NUM_NODES": "2"}

    def test_plans_job_on_perlmutter(self):
        plan = self.plan("Perlmutter", **self.slurm("nid[001004-001005]", 4))
        self.assert_plan(plan, "slurm", ["nid001004", "nid001005"], 4)

    def test_plans_job_on_lumi(self):
        plan = self.plan("LUMI-G", **self.slurm("nid[005018,005020]", 8))
        self.assert_plan(plan, "slurm", ["nid005018", "nid005020"], 8)

    def test_plans_job_on_isambard(self):
        plan = self.plan("Isambard-AI", **self.slurm("nid[010151-010152]", 4))
        self.assert_plan(plan, "slurm", ["nid010151", "nid010152"], 4)

    def test_plans_job_on_aurora(self):
        """Gives the first node, where dslaunch runs, two GPUs, which are four tiles."""
        nodes = self.folder / "nodefile"
        names = [f"x4102c5s{i}b0n0.hsn.cm.aurora.alcf.anl.gov" for i in range(2)]
        nodes.write_text("".join(f"{name}\n" for name in names))
        if fake_machine.why_not():
            self.assert_plan(self.plan("Aurora", PBS_NODEFILE=str(nodes)), "ssh", names, 1)
            return
        machine = fake_machine.FakeMachine("xpu", self.folder / "machine")
        popen = self.popen
        self.popen = lambda argv, *rest, **files: popen([*machine.enter, *argv], *rest, **files)
        plan = self.plan("Aurora", PBS_NODEFILE=str(nodes))
        self.assert_plan(plan, "ssh", names, 4)
        self.assertEqual("nodes from PBS_NODEFILE, slots from the 4 GPUs of this machine", plan["slots_note"])
        composite = self.plan("Aurora", PBS_NODEFILE=str(nodes), ZE_FLAT_DEVICE_HIERARCHY="COMPOSITE")
        self.assert_plan(composite, "ssh", names, 2)

    def test_plans_job_on_summit(self):
        self.write_program("blaunch")
        nodes = self.folder / "hostfile"
        nodes.write_text("batch1\n" + "a01n01\n" * 42 + "a01n02\n" * 42)
        subprocess.run(["bash", "-c", PREPARATION["Summit-like"]], check=True, cwd=self.folder, timeout=10,
                       env={**os.environ, "LSB_DJOB_HOSTFILE": str(nodes)})
        plan = self.plan("Summit-like", LSB_DJOB_HOSTFILE=str(nodes))
        self.assert_plan(plan, "lsf", ["a01n01", "a01n02"], 6)

    def test_plans_job_on_el_capitan(self):
        self.write_program("flux")
        (self.folder / "hosts").write_text("elcap1 slots=4\nelcap2 slots=4\n")
        plan = self.plan("El", FLUX_JOB_ID="1")
        self.assert_plan(plan, "exec", ["elcap1", "elcap2"], 4)

    def test_every_section_is_tested(self):
        self.assertEqual({"Perlmutter", "LUMI-G", "Isambard-AI", "Aurora", "Summit-like", "El"}, set(LINES))


LINES = {machine: line for machine, line, _ in sections()}
PREPARATION = {machine: before for machine, _, before in sections()}

if __name__ == "__main__":
    main()
