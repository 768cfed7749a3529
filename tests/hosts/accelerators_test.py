"""Tests jobs on machines with accelerators of each vendor (tests/support/machines/fake_machine.py), alone and in
Slurm's allocations.

  tests/hosts/accelerators_test.py            runs the tests
  tests/hosts/accelerators_test.py --write    also writes the table of docs/launching.md
"""

import ast
import json
import os
import re
import sys

for folder in ("support", "support/machines"):
    sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/" + folder)
import fake_machine  # noqa: E402
from fake_machine import KINDS, VARIABLES, FakeMachine, noun  # noqa: E402
from hosts_case import HostsCase  # noqa: E402
from launcher_case import ROOT, LauncherCase, bash, main  # noqa: E402
from slurm_case import NOT_RUN, SlurmCase  # noqa: E402
from slurm_cluster import why_not as why_no_slurm  # noqa: E402
from test_hosts import why_not as why_no_hosts  # noqa: E402

PAGE = ROOT / "docs" / "launching.md"
BEGIN, END = "<!-- accelerators_test.py -->\n", "<!-- end -->\n"
ALL_VARIABLES = sorted({name for names in VARIABLES.values() for name in names} |
                       {"ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"})
SHOW = bash('{ env; grep Cpus_allowed_list /proc/self/status; } > "$1/rank.$RANK"')
# Variables that batch systems and users set on the machine of the tests. They must not reach the jobs.
HIDDEN = re.compile(r"_VISIBLE_|ZE_AFFINITY_MASK|GPU_DEVICE_ORDINAL|SLURM_|FLUX_")

TOOLS = {"rocm": "rocm-smi", "xpu": "xpu-smi", "npu": "npu-smi", "hpu": "hl-smi", "mlu": "cnmon"}
# Rows of the table in docs/launching.md.
CASES = ("all four", "`--include localhost:0,2`", "`--include localhost:0,7`", "variable set to `1,9,2`",
         "container with the last two", "`--numa_binding node` of 1 and 2", "Slurm gives the last two")
table = {}  # cells of the table in docs/launching.md, by (case, kind)


class MachineCase(LauncherCase):
    def machine(self, kind, **options):
        return FakeMachine(kind, self.folder / f"{kind}{len(list(self.folder.iterdir()))}", **options)

    def run_on(self, machine, *arguments, env=None):
        """Runs dslaunch on the machine; returns (exit code, Job, variables of each rank)."""
        for path in self.folder.glob("rank.*"):
            path.unlink()
        popen = self.popen
        self.popen = lambda argv, *rest, **files: popen([*machine.enter, *argv], *rest, **files)
        try:
            code, job = self.run_job(*arguments, *SHOW, "-", self.folder, env=env)
        finally:
            self.popen = popen
        ranks = []
        for number in range(len(list(self.folder.glob("rank.*")))):
            lines = (self.folder / f"rank.{number}").read_text(errors="replace").splitlines()
            ranks.append(dict(line.replace(":\t", "=", 1).split("=", 1) for line in lines if re.match(r"[A-Za-z_]+[=:]", line)))
        return code, job, ranks

    def base_environment(self):
        return {name: value for name, value in super().base_environment().items() if not HIDDEN.search(name)}

    def assert_devices(self, kind, ranks, count, value, env=None):
        """Checks the number of ranks, and that each rank has `value` in the variables of its kind and no value in
        other kinds' variables."""
        self.assertEqual(count, len(ranks))
        expected = {**(env or {}), **dict.fromkeys(VARIABLES[kind], value)}
        for rank in ranks:
            self.assertEqual(expected, {name: rank[name] for name in ALL_VARIABLES if name in rank})

    def note(self, case, kind, cell):
        table[(case, kind)] = cell


class Machines(MachineCase):
    def test_counts_devices(self):
        for kind in KINDS:
            with self.subTest(kind):
                machine = self.machine(kind)
                code, job, ranks = self.run_on(machine)
                self.assert_code(0, code, job)
                self.assert_prints(job, rf"4 ranks \(local, {kind}\)", f"slots from the 4 {noun(kind)}s of this machine")
                self.assert_devices(kind, ranks, 4, machine.names(range(4)))
                self.note("all four", kind, machine.names(range(4)))

    def test_filter_chooses_devices(self):
        for kind in KINDS:
            with self.subTest(kind):
                machine = self.machine(kind)
                code, job, ranks = self.run_on(machine, "--include", "localhost:0,2")
                self.assert_code(0, code, job)
                self.assert_devices(kind, ranks, 2, machine.names([0, 2]))
                self.note("`--include localhost:0,2`", kind, machine.names([0, 2]))

    def test_num_gpus_takes_first_devices(self):
        for kind in KINDS:
            with self.subTest(kind):
                machine = self.machine(kind)
                code, job, ranks = self.run_on(machine, "--device", kind, "--num_gpus", 2)
                self.assert_code(0, code, job)
                self.assert_devices(kind, ranks, 2, machine.names([0, 1]))
                code, job, _ = self.run_on(machine, "--num_gpus", 8)
                self.assert_code(64, code, job)
                self.assert_prints(job, f"this machine has 4 {noun(kind)}s for 8 slots")

    def test_rejects_device_that_is_missing(self):
        for kind in KINDS:
            with self.subTest(kind):
                code, job, ranks = self.run_on(self.machine(kind), "--include", "localhost:0,7")
                self.assert_code(64, code, job)
                self.assert_prints(job, "no slot 7: localhost has slots 0 to 3")
                self.assertEqual([], ranks)
                self.note("`--include localhost:0,7`", kind, "refused")

    def test_users_variable_limits_devices(self):
        for kind in KINDS:
            name = VARIABLES[kind][0]
            with self.subTest(kind):
                machine = self.machine(kind)
                code, job, ranks = self.run_on(machine, env={name: "1,3"})
                self.assert_code(0, code, job)
                self.assertEqual(2, len(ranks))
                self.assertEqual({"1,3"}, {rank[name] for rank in ranks})
                code, job, ranks = self.run_on(machine, env={name: "1,9,2"})
                self.assert_code(0, code, job)
                self.assertEqual(1, len(ranks), "an unknown device ends the list")
                code, job, ranks = self.run_on(machine, env={name: "1,1"})
                self.assert_code(64, code, job)
                self.assert_prints(job, f"{name}=1,1 names 1 twice")
                self.note("variable set to `1,9,2`", kind, "1 rank")

    def test_container_counts_its_device_files(self):
        for kind in KINDS:
            with self.subTest(kind):
                machine = self.machine(kind, files=(2, 3))
                code, job, ranks = self.run_on(machine)
                self.assert_code(0, code, job)
                self.assert_devices(kind, ranks, 2, machine.names([0, 1]))
                self.note("container with the last two", kind, machine.names([0, 1]))

    def test_binds_ranks_to_numa_nodes_of_devices(self):
        for kind in KINDS:
            with self.subTest(kind):
                machine = self.machine(kind)
                code, job, ranks = self.run_on(machine, "--numa_binding", "node", "--include", "localhost:1,2")
                self.assert_code(0, code, job)
                nodes = [machine.numa_node_of(number) for number in (1, 2)]
                expected = [",".join(map(str, machine.cpus[node])) for node in nodes]
                self.assertEqual(expected, [rank["Cpus_allowed_list"] for rank in ranks])
                self.note("`--numa_binding node` of 1 and 2", kind,
                          f"nodes {nodes[0]}, {nodes[1]}" if nodes[0] != nodes[1] else f"node {nodes[0]}")

    def test_refuses_numa_binding_of_unknown_nodes(self):
        """For Ascend and Cambricon the kernel shows the NUMA nodes, but not which device is on which node."""
        for kind in ("npu", "mlu"):
            with self.subTest(kind):
                machine = self.machine(kind)
                for number in range(2):
                    machine.numa_node = number
                    path = sorted((machine.folder / "sys/devices/pci-test").iterdir())[number]
                    (path / "numa_node").write_text(f"{number}\n")
                code, job, _ = self.run_on(machine, "--numa_binding", "node")
                self.assert_code(64, code, job)
                self.assert_prints(job, f"does not show on which NUMA node {noun(kind)} 0 is; use --bind_cores_to_rank")

    def test_virtual_local_rank_sees_one_device(self):
        for kind in KINDS:
            with self.subTest(kind):
                machine = self.machine(kind)
                code, job, ranks = self.run_on(machine, "--virtual_local_rank", "--num_gpus", 2)
                self.assert_code(0, code, job)
                self.assertEqual([machine.names([0]), machine.names([1])], [rank[VARIABLES[kind][0]] for rank in ranks])

    def test_cpu_hides_devices_where_it_can(self):
        for kind in KINDS:
            with self.subTest(kind):
                code, job, ranks = self.run_on(self.machine(kind), "--device", "cpu", "--num_gpus", 2)
                self.assert_code(0, code, job)
                self.assertEqual(2, len(ranks))
                seen = {name: ranks[0][name] for name in ALL_VARIABLES if name in ranks[0]}
                self.assertEqual({"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "-1"}, seen)

    def test_dry_run_shows_variables_of_ranks(self):
        for kind in KINDS:
            with self.subTest(kind):
                machine = self.machine(kind)
                code, job, _ = self.run_on(machine, "--dry_run", "--json", "--include", "localhost:1,3")
                self.assert_code(0, code, job)
                plan = json.loads(job.stdout)
                self.assertEqual(kind, plan["device"])
                for name in VARIABLES[kind]:
                    self.assertEqual(machine.names([1, 3]), plan["ranks"][1]["env"][name])

    def test_doctor_and_hostfile_name_devices(self):
        for kind in KINDS:
            with self.subTest(kind):
                machine = self.machine(kind)
                popen = self.popen
                self.popen = lambda argv, *rest, **files: popen([*machine.enter, *argv], *rest, **files)
                try:
                    code, job = self.run_job("doctor", "--json")
                    self.assert_code(0, code, job)
                    self.assertEqual(4, json.loads(job.stdout)["nodes"][0]["info"]["gpus_visible"])
                    code, job = self.run_job("hostfile", "write", "--hosts", "localhost")
                    self.assert_code(0, code, job)
                    self.assertRegex(job.stdout, rf"localhost  slots=4  # 4 {noun(kind)}s")
                finally:
                    self.popen = popen

    def test_doctor_reports_tool_that_fails(self):
        tools = self.folder / "tools"
        tools.mkdir()
        for kind, tool in TOOLS.items():
            (tools / tool).write_text("#!/bin/sh\nexit 3\n")
            (tools / tool).chmod(0o755)
            with self.subTest(kind):
                machine = self.machine(kind)
                popen = self.popen
                self.popen = lambda argv, *rest, **files: popen([*machine.enter, *argv], *rest, **files)
                try:
                    _, job = self.run_job("doctor", env={"PATH": f"{tools}:{os.environ['PATH']}"})
                    self.assert_prints(job, f"gpu driver: {tool}: exit code 3")
                finally:
                    self.popen = popen

    def test_flux_gives_devices(self):
        """Flux's plugins set CUDA_VISIBLE_DEVICES, and on AMD's machines ROCR_VISIBLE_DEVICES too."""
        for kind, variables, value in (("cuda", ["CUDA_VISIBLE_DEVICES"], "2,3"),
                                       ("rocm", ["ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"], "0,1")):
            with self.subTest(kind):
                flux = {"FLUX_JOB_ID": "f2X", **dict.fromkeys(variables, "2,3")}
                code, job, ranks = self.run_on(self.machine(kind), env=flux)
                self.assert_code(0, code, job)
                self.assertEqual([value] * 2, [rank[VARIABLES[kind][0]] for rank in ranks])
                code, job, ranks = self.run_on(self.machine(kind), "--include", "localhost:1", env=flux)
                self.assert_code(0, code, job)
                self.assertEqual([value[-1]], [rank[VARIABLES[kind][0]] for rank in ranks])

    def test_trainer_computes_on_nvidia_and_cpu_only(self):
        code, job = self.run_job("--device", "rocm", "--dry_run", "train")
        self.assert_code(64, code, job)
        self.assert_prints(job, "the embedded trainer computes on NVIDIA GPUs and on CPUs")

    def test_sets_variables_that_deepspeed_sets(self):
        folder = next((ROOT / ".deps").glob("deepspeed/lib/python3*/site-packages/deepspeed/accelerator"), None)
        if folder is None:
            self.skipTest("DeepSpeed is not in .deps")
        for kind in KINDS:
            name = "cuda" if kind == "rocm" else kind  # DeepSpeed on ROCm uses its CUDA accelerator
            path = folder / f"{name}_accelerator.py"
            if not path.exists():
                continue
            method = next(node for node in ast.walk(ast.parse(path.read_text()))
                          if isinstance(node, ast.FunctionDef) and node.name == "visible_devices_envs")
            theirs = ast.literal_eval(next(node.value for node in ast.walk(method) if isinstance(node, ast.Return)))
            with self.subTest(kind):
                if kind == "hpu":  # DeepSpeed's variable has no effect on Gaudi, as a comment in DeepSpeed states
                    self.assertEqual(["CUDA_VISIBLE_DEVICES"], theirs)
                else:
                    self.assertLessEqual(set(theirs), set(VARIABLES[kind]))


class Allocations(SlurmCase, MachineCase):
    """Tests allocations in which Slurm gives the last two of a node's four devices. dslaunch runs in a step with one
    task."""

    # Nodes, and the flag in gres.conf that selects the variables that Slurm sets on each node.
    FLAGS = {"n1": "nvidia_gpu_env", "n2": "amd_gpu_env", "n3": "intel_gpu_env", "n4": ""}
    NODES = {"cuda": ["n1", "n4"], "rocm": ["n2", "n4"], "xpu": ["n3", "n4"], "npu": ["n4"], "hpu": ["n4"], "mlu": ["n4"]}
    cluster_options = {"gpus": 4, "gres_flags": FLAGS}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        done = cls.cluster.run("salloc", "--quiet", "--no-shell", "-N4", "--gres=gpu:2")  # the first two of each node
        assert done.returncode == 0, done.stderr

    def setUp(self):
        super(SlurmCase, self).setUp()  # skips SlurmCase.setUp, which would end all jobs after each test

    def popen(self, argv, env, cwd, **options):
        if self.node is None:
            return super().popen(argv, env, cwd, **options)
        step = ["srun", "--quiet", "--overlap", f"--nodelist={self.node}", "-N1", "-n1", "--gres=gpu:2"]
        return super().popen([*step, *argv], env, cwd, **options)

    node = None

    def base_environment(self):
        return {**MachineCase.base_environment(self), **self.cluster.environment}

    def test_ranks_see_devices_of_allocation(self):
        for kind in KINDS:
            for self.node in self.NODES[kind]:
                with self.subTest(kind, node=self.node):
                    machine = self.machine(kind)
                    code, job, ranks = self.run_on(machine, "--launcher", "local")
                    self.assert_code(0, code, job)
                    self.assertEqual(2, len(ranks), job.output)
                    rank = ranks[0]
                    self.assertEqual("2,3", rank["SLURM_STEP_GPUS"])
                    # HIP's numbers count the devices that ROCR_VISIBLE_DEVICES shows, and Slurm has set that variable.
                    value = "0,1" if kind == "rocm" else "2,3"
                    self.assertEqual(dict.fromkeys(VARIABLES[kind], value), {name: rank[name] for name in VARIABLES[kind]})
                    if kind == "rocm":
                        self.assertEqual("2,3", rank["ROCR_VISIBLE_DEVICES"])
                        if self.node == "n4":
                            self.assertEqual("0,1", rank["GPU_DEVICE_ORDINAL"])
                    self.note("Slurm gives the last two", kind, rank[VARIABLES[kind][0]])

    def test_filter_counts_devices_of_allocation(self):
        for kind in KINDS:
            self.node = self.NODES[kind][0]
            with self.subTest(kind):
                code, job, ranks = self.run_on(self.machine(kind), "--launcher", "local", "--include", "localhost:1")
                self.assert_code(0, code, job)
                self.assertEqual({"rocm": "1"}.get(kind, "3"), ranks[0][VARIABLES[kind][0]])
                code, job, _ = self.run_on(self.machine(kind), "--launcher", "local", "--include", "localhost:2")
                self.assert_code(64, code, job)


class OverSsh(HostsCase):
    """Tests two nodes with devices, reached over SSH."""

    def make(self, *kinds):
        """Starts hosts whose nodes are machines of these kinds."""
        hosts = self.fresh_hosts(count=len(kinds))
        for node, kind in zip(hosts.nodes, kinds):
            machine = FakeMachine(kind, self.folder / f"{node.name}.{kind}")
            done = node.run(["sh", machine.script])
            self.assertEqual(0, done.returncode, done.stderr)
        return hosts

    def test_nodes_use_their_devices(self):
        hosts = self.make("rocm", "rocm")
        code, job = self.run_job("hostfile", "write", "--hosts", "node1,node2")
        self.assert_code(0, code, job)
        self.assertEqual(2, len(re.findall(r"slots=4  # 4 GPUs \(AMD INSTINCT MI250", job.stdout)), job.output)
        code, job = self.run_job("--hostfile", hosts.hostfile(slots=4), "--include", "node1@node2:1,3", "--show", "all",
                                 *bash('echo "$RANK: $HIP_VISIBLE_DEVICES / $CUDA_VISIBLE_DEVICES."'))
        self.assert_code(0, code, job)
        self.assert_prints(job, r"6 ranks \(ssh, rocm\)", r"0: 0,1,2,3 / 0,1,2,3\.", r"5: 1,3 / 1,3\.")
        self.assert_nothing_left()

    def test_refuses_nodes_of_different_kinds(self):
        hosts = self.make("npu", "rocm")
        code, job = self.run_job("--hostfile", hosts.hostfile(slots=2), "true")
        self.assert_code(64, code, job)
        self.assert_prints(job, "node1 has Ascend NPUs, node2 has AMD GPUs; choose nodes of one kind with --include")
        code, job = self.run_job("--hostfile", hosts.hostfile(slots=2), "--include", "node1", "true")
        self.assert_code(0, code, job)
        code, job = self.run_job("--hostfile", hosts.hostfile(slots=2), "--device", "cpu", "true")
        self.assert_code(0, code, job)
        self.assert_nothing_left()


def markdown():
    lines = [["job", *(f"`{kind}`" for kind in KINDS)], ["---"] * (1 + len(KINDS))]
    lines += [[case, *(table.get((case, kind), "not run") for kind in KINDS)] for case in CASES]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


class Table(LauncherCase):
    """Checks or writes the table. Must run last: unittest sorts classes by name, so its name follows those of the
    classes above."""

    def test_page_has_table(self):
        text = PAGE.read_text()
        before, rest = text.split(BEGIN)
        written, after = rest.split(END)
        if "--write" in WORDS:
            PAGE.write_text(before + BEGIN + markdown() + END + after)
            return
        if len(table) < 40:
            self.skipTest("the other tests have not run")
        self.assertEqual(written, markdown(), "run tests/hosts/accelerators_test.py --write")


WORDS = list(sys.argv)

if __name__ == "__main__":
    sys.argv[:] = [word for word in sys.argv if word != "--write"]
    reason = fake_machine.why_not() or why_no_slurm() or why_no_hosts()
    if reason is not None:
        print(f"NOT RUN: {reason}")
        sys.exit(NOT_RUN)
    main()
