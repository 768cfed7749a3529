"""Tests command lines of deepspeed and torchrun in which only the command word is changed, on two test hosts. A
PyTorch script must train, and each rank must get the variables that these tools document."""

import base64
import json
import os
import pathlib
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from hosts_case import ORACLE_PYTHON, HostsCase, main  # noqa: E402
from launcher_case import DSLAUNCH, ROOT  # noqa: E402

SCRIPT = pathlib.Path(__file__).with_name("drop_in_script.py")
# The user's shell has activated the virtual environment with PyTorch, which exists on all nodes.
VENV = {"VIRTUAL_ENV": str(ORACLE_PYTHON.parents[1])}


def place(rank, local_rank, node, world, local_size, nodes):
    """Returns the variables that deepspeed and torchrun give to a rank at this position. (DeepSpeed's own LOCAL_RANK
    is permuted if nodes differ.)"""
    both = {"RANK": rank, "LOCAL_RANK": local_rank, "WORLD_SIZE": world}
    deepspeed = {"LOCAL_SIZE": local_size, "CROSS_RANK": node, "CROSS_SIZE": nodes}
    torchrun = {"LOCAL_WORLD_SIZE": local_size, "GROUP_RANK": node, "GROUP_WORLD_SIZE": nodes, "ROLE_RANK": rank,
                "ROLE_WORLD_SIZE": world, "ROLE_NAME": "default", "TORCHELASTIC_RESTART_COUNT": 0,
                "TORCHELASTIC_MAX_RESTARTS": 0, "TORCHELASTIC_USE_AGENT_STORE": False,
                "TORCH_NCCL_ASYNC_ERROR_HANDLING": 1}
    return {name: str(value) for name, value in {**both, **deepspeed, **torchrun}.items()}


class DropIn(HostsCase):
    def setUp(self):
        super().setUp()
        if not ORACLE_PYTHON.exists():
            self.fail(f"{ORACLE_PYTHON} is missing; packaging/fetch-oracle makes it")
        self.script = self.folder / "train.py"
        self.script.write_text(SCRIPT.read_text())

    def unequal_hosts(self):
        return self.hosts.hostfile(text="node1 slots=1\nnode2 slots=2\n")

    def reports(self, world=3):
        return [json.loads((self.folder / f"rank.{rank}.json").read_text()) for rank in range(world)]

    def assert_contract(self, reports, slots=(1, 2)):
        rank = 0
        for node, local_size in enumerate(slots):
            for local_rank in range(local_size):
                env = reports[rank]["env"]
                expected = place(rank, local_rank, node, sum(slots), local_size, len(slots))
                self.assertEqual(expected, {name: env.get(name) for name in expected}, f"rank {rank}")
                for name in ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "OMP_NUM_THREADS"):
                    self.assertTrue(env.get(name), f"rank {rank}: {name}")
                self.assertEqual(f"node{node + 1}", reports[rank]["host"])
                rank += 1
        for name in ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"):
            self.assertEqual(1, len({report["env"][name] for report in reports}), name)
        for report in reports:
            self.assertTrue(report["same_weights"] and report["learnt"], report)
            self.assertEqual(str(ORACLE_PYTHON), report["interpreter"])
            self.assertEqual(str(self.folder), report["cwd"])


class DeepSpeedStyle(DropIn):
    def test_script_gets_variables_and_arguments(self):
        (self.folder / ".deepspeed_env").write_text("# for all\nNOTE=two words\n")
        code, job = self.run_job("--hostfile", self.unequal_hosts(), "--master_port=29511", self.script,
                                 "--out", self.folder, "--note", "a \"b\" $(c) 64(x2)",
                                 env={**VENV, "NCCL_DEBUG": "WARN", "MINE": "1", "PYTHONPATH": "/lib/mine"}, timeout_s=150)
        self.assert_code(0, code, job)
        reports = self.reports()
        self.assert_contract(reports)
        for report in reports:
            env = report["env"]
            self.assertEqual("a \"b\" $(c) 64(x2)", report["note"])
            self.assertEqual(("29511", "two words", "WARN", f"{self.folder}:/lib/mine", None),
                             (env["MASTER_PORT"], env["NOTE"], env["NCCL_DEBUG"], env["PYTHONPATH"], env.get("MINE")))
            self.assertEqual(int(env["LOCAL_RANK"]), report["local_rank"], "as DeepSpeed gives it")
        self.assert_nothing_left()

    def test_module_gets_no_local_rank_argument(self):
        (self.folder / "pkg").mkdir()
        (self.folder / "pkg" / "train.py").write_text(SCRIPT.read_text())
        code, job = self.run_job("-H", self.unequal_hosts(), "--module", "--no_local_rank", "pkg.train",
                                 "--out", self.folder, env=VENV, timeout_s=150)
        self.assert_code(0, code, job)
        self.assert_contract(self.reports())
        self.assertEqual({-1}, {report["local_rank"] for report in self.reports()})

    def test_sources_venv_script_on_each_node(self):
        for node in self.hosts.nodes:
            node.write_file("activate", f"export VIRTUAL_ENV={VENV['VIRTUAL_ENV']}\nexport SITE=$(hostname)\n")
        code, job = self.run_job("--hostfile", self.unequal_hosts(), "--venv_script", "activate", self.script,
                                 "--out", self.folder, timeout_s=150)
        self.assert_code(0, code, job)
        self.assert_contract(self.reports())
        self.assertEqual(["node1", "node2", "node2"], [report["env"]["SITE"] for report in self.reports()])


class TorchrunStyle(DropIn):
    """Tests one command on each node, without SSH."""

    def test_two_commands_form_one_job(self):
        commands = []
        for rank, node in enumerate(self.hosts.nodes):
            token = node.write_file("token", "7d0f5c1be9a24863b1d7f02c95ae6e38", mode=0o600)
            words = [DSLAUNCH, "--nnodes=2", f"--node-rank={rank}", "--nproc-per-node=2", f"--rdzv_token_file={token}",
                     "--rdzv-endpoint=node1:29455", "--rdzv-id=77", "--role=trainer", str(self.script),
                     "--out", str(self.folder), "--note", "x y"]
            commands.append(node.popen(words, env=VENV, cwd=str(self.folder)))
        self.assertEqual([0, 0], [command.wait(timeout=150) for command in commands])
        reports = self.reports(4)
        for report in reports:
            self.assertEqual("trainer", report["env"].pop("ROLE_NAME"))
            report["env"]["ROLE_NAME"] = "default"
            self.assertEqual("x y", report["note"])
        self.assert_contract(reports, slots=(2, 2))


class AgainstTheTools(HostsCase):
    """Compares dslaunch with the tools themselves, on one host."""

    REPORT = ("import json, os, sys\n"
              "json.dump({'env': dict(os.environ), 'argv': sys.argv[1:]},\n"
              "          open(os.environ['FOLDER'] + '/rank.' + os.environ['RANK'], 'w'))\n")
    # Variables that are not compared: each tool sets them in its own way (the job's id, the port, the host of the
    # store, the number of threads). Or the tools set them for themselves, as PyTorch programs.
    OWN = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "OMP_NUM_THREADS",
           "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_SIGNALS_TO_HANDLE", "TORCHINDUCTOR_CACHE_DIR",
           "PYTORCH_NVML_BASED_CUDA_CHECK"}

    def environment_from(self, argv, ranks):
        """Returns each rank's arguments and the variables that a launcher adds to the launcher's own environment."""
        script = self.folder / "report.py"
        script.write_text(self.REPORT)
        own = {**VENV, "FOLDER": str(self.folder), "PATH": f"{ORACLE_PYTHON.parent}:/usr/bin:/bin"}
        done = self.front.run([*argv, str(script), "a b"], env=own, cwd=str(self.folder), timeout_s=120)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        reports = {}
        for rank in ranks:
            path = self.folder / f"rank.{rank}"
            reports[rank] = json.loads(path.read_text())
            path.unlink()
            reports[rank]["env"] = {name: value for name, value in reports[rank]["env"].items()
                                    if own.get(name) != value and name not in self.OWN}
        return reports

    def assert_covers(self, theirs, ours):
        for rank, report in theirs.items():
            env = {name: ours[rank]["env"].get(name) for name in report["env"]}
            self.assertEqual(report["env"], env, f"rank {rank}")

    def test_sets_all_variables_of_torchrun(self):
        options = ["--nproc-per-node", "2", "--role", "trainer", "--max-restarts=1"]
        theirs = self.environment_from([str(ORACLE_PYTHON), "-m", "torch.distributed.run", *options], range(2))
        ours = self.environment_from([DSLAUNCH, *options], range(2))
        self.assertIn("GROUP_WORLD_SIZE", theirs[0]["env"])
        self.assert_covers(theirs, ours)
        self.assertEqual(theirs[0]["argv"], ours[0]["argv"])

    def test_sets_all_variables_of_deepspeed(self):
        python = ROOT / ".deps" / "deepspeed" / "bin" / "python3"
        if not python.exists():
            self.skipTest(f"{python} is missing; packaging/fetch-deepspeed makes it")
        nodes = base64.urlsafe_b64encode(json.dumps({"node1": [0, 1]}).encode()).decode()
        theirs = self.environment_from([str(python), "-m", "deepspeed.launcher.launch", f"--world_info={nodes}",
                             "--no_local_rank"], range(2))
        ours = self.environment_from([DSLAUNCH, "--num_gpus", "2"], range(2))
        self.assertIn("CROSS_SIZE", theirs[0]["env"])
        for report in theirs.values():
            report["env"].pop("CUDA_VISIBLE_DEVICES")  # set even on hosts without GPUs
        self.assert_covers(theirs, ours)


if __name__ == "__main__":
    main()
