"""Tests the commands of a Kubernetes manifest, run as its pods would run them, and the variables of Kubeflow's
trainer."""

import json
import re
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from free_ports import free_port  # noqa: E402
from launcher_case import LauncherCase, bash, main  # noqa: E402


class Kubernetes(LauncherCase):
    def setUp(self):
        super().setUp()
        self.token = self.folder / "token"
        self.token.write_text("0123456789abcdef" * 2 + "fedcba9876543210\n")
        self.token.chmod(0o400)

    def container_arguments(self, *job):
        code, done = self.run_job("manifest", "kubernetes", *job)
        self.assert_code(0, code, done)
        text, = re.findall(r"\n( +)args:\n((?:\1  - .*\n)+)", done.stdout)
        return [json.loads(word) if word.startswith('"') else word for word in re.findall(r"- (.*)\n", text[1])]

    def assert_ranks(self, first, second):
        self.assert_code(0, self.wait(second), second)
        self.assert_code(0, self.wait(first), first)
        self.assertEqual(["0 of 4, node 0", "1 of 4, node 0", "2 of 4, node 1", "3 of 4, node 1"],
                         sorted(re.findall(r"\d of 4, node \d", first.stdout + second.stdout)), first.output + second.output)
        self.assert_nothing_left()

    def test_each_pod_of_manifest_is_a_node(self):
        script = 'echo "$RANK of $WORLD_SIZE, node $GROUP_RANK"'
        for kind in ("jobset", "job"):
            with self.subTest(kind=kind):
                arguments = self.container_arguments("--kind", kind, "--name", "gpt", "-N", "2", "-n", "2", "--image", "x", "--",
                                                     "--show", "all", *bash(script))
                host = {"jobset": "gpt-node-0-0.gpt", "job": "gpt-0.gpt"}[kind]
                port = free_port()
                arguments = [word.replace(f"{host}:29500", f"127.0.0.1:{port}")
                             .replace("/run/dslaunch/token", str(self.token)).replace("$$", "$") for word in arguments]
                self.assertIn(f"127.0.0.1:{port}", arguments)
                pods = [self.start(arguments, env={"JOB_COMPLETION_INDEX": str(index)}) for index in (0, 1)]
                self.assert_ranks(*pods)

    def test_variables_of_kubeflow_trainer_form_a_job(self):
        port = free_port()
        pods = [self.start("--rdzv_token_file", self.token, "--show", "all", bash('echo "$RANK of $WORLD_SIZE, node $GROUP_RANK"'),
                           env={"PET_NNODES": "2", "PET_NPROC_PER_NODE": "2", "PET_NODE_RANK": str(index),
                                "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": str(port)}) for index in (0, 1)]
        self.assert_ranks(*pods)

    def test_manifest_names_missing_options(self):
        for given, why in ((["--image", "x", "--", "true"], "how many nodes"), (["-N", "2", "--", "true"], "which image"),
                           (["-N", "2", "--image", "x"], "what is to run"),
                           (["-N", "2", "--image", "x", "--name", "A_b", "--", "true"], "--name A_b")):
            code, job = self.run_job("manifest", "kubernetes", given)
            self.assert_code(64, code, job)
            self.assert_prints(job, why)


if __name__ == "__main__":
    main()
