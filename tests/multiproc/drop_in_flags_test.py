"""Tests every flag of deepspeed 0.19 and torchrun 2.11 on a real command line. The job must run, or be refused with
a message that names the flag and with code 64."""

import ast
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from launcher_case import ROOT, LauncherCase, bash, main  # noqa: E402

USAGE = 64

# {flag: (its value, or None if it takes none, and other words that must be on the command line)}. A job of one rank on
# this machine follows these words.
ACCEPTED = {
    "deepspeed": {
        "--num_nodes": ("1", []),
        "--min_elastic_nodes": ("1", []),
        "--max_elastic_nodes": ("1", []),
        "--elastic_training": (None, ["--num_nodes", "1"]),
        "--num_gpus": ("1", []),
        "--num_accelerators": ("1", []),
        "--master_port": ("0", []),
        "--master_addr": ("127.0.0.1", []),
        "--node_rank": ("0", []),
        "--launcher": ("local", []),
        "--no_python": (None, []),
        "--no_local_rank": (None, []),
        "--no_ssh_check": (None, []),
        "--enable_each_rank_log": ("logs", []),
        "--log_level": ("warning", []),
        "--quiet": (None, []),
        "-q": (None, []),
    },
    "torchrun": {
        "--nnodes": ("1:1", []),
        "--nproc-per-node": ("1", []),
        "--rdzv-backend": ("c10d", []),
        "--rdzv-endpoint": ("localhost:0", []),
        "--rdzv-id": ("7", []),
        "--rdzv-conf": ("join_timeout=60", []),
        "--standalone": (None, []),
        "--max-restarts": ("0", []),
        "--monitor-interval": ("0.1", []),
        "--start-method": ("spawn", []),
        "--event-log-handler": ("null", []),
        "--role": ("worker", []),
        "--no-python": (None, []),
        "--log-dir": ("logs", []),
        "--redirects": ("0", []),
        "-r": ("3", []),
        "--tee": ("0:3", []),
        "-t": ("3", []),
        "--local-ranks-filter": ("0", []),
        "--duplicate-stdout-filters": ("x", []),
        "--duplicate-stderr-filters": ("x", []),
        "--node-rank": ("0", []),
        "--master-addr": ("127.0.0.1", []),
        "--master-port": ("0", []),
        "--local-addr": ("127.0.0.1", []),
        "--signals-to-handle": ("SIGTERM,SIGINT", []),
    },
}

# (words, pattern of the message that refuses them)
REFUSED = [
    (["--autotuning", "run"], "--autotuning is for recipes .*deepspeed --autotuning"),
    (["--launcher", "mpich"], "--launcher mpich is not supported: .*--launcher ssh"),
    (["--launcher=SLURM"], "--launcher slurm: this shell is in no allocation of Slurm.s .*get one by salloc"),
    (["--tee", "all"], "--tee all is not supported: .*--show all"),
    (["-t", "none"], r"-t \(--tee\) none is not supported: .*--show none"),
    (["--logs-specs", "mine"], "--logs_specs is not supported: .*--log_dir"),
    (["--rdzv-backend=etcd"], "--rdzv_backend etcd is not supported"),
    (["--rdzv-conf", "read_timeout=5"], "read_timeout is not supported: .*--dead_s"),
    (["--event-log-handler", "console"], "--event_log_handler 'console' is not supported"),
    (["--signals-to-handle", "SIGWINCH"], "'SIGWINCH' is not handled"),
    (["--nproc-per-node", "xpu"], "--nproc_per_node xpu is not supported"),
    (["-i", "w0", "-e", "w1"], r"-i \(--include\) and -e \(--exclude\) exclude each other"),
    (["--include=w0", "--num_gpus=2"], "--include and --num_gpus exclude each other"),
    (["--module", "--no_python"], "--module and --no_python exclude each other"),
    (["--nnodes=2", "--node-rank=2", "--master-addr=h"], "nodes are counted from 0"),
    (["--rdzv-endpoint=h:65536"], "--rdzv_endpoint: the port must be a whole number"),
    (["--launhcer", "local"], "unknown option '--launhcer', did you mean --launcher"),
    (["--log", "x"], "could be one of --log_level, --log_dir, --logs_specs"),
]

# The parsers of both tools, if the tools are on this machine.
PARSERS = {
    "deepspeed": ".deps/deepspeed/lib/python3.*/site-packages/deepspeed/launcher/runner.py",
    "torchrun": ".deps/oracle/lib/python3.*/site-packages/torch/distributed/run.py",
}


def flags_of(source):
    """Yields the option strings of every add_argument call in a Python file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            for argument in node.args:
                if isinstance(argument, ast.Constant) and str(argument.value).startswith("-"):
                    yield argument.value


class DropInFlags(LauncherCase):
    def test_accepted_flags_run_the_job(self):
        for tool, flags in ACCEPTED.items():
            for flag, (value, others) in flags.items():
                for spelling in {flag, flag[:2] + flag[2:].replace("-", "_"), flag[:2] + flag[2:].replace("_", "-")}:
                    with self.subTest(tool=tool, flag=spelling):
                        words = [*others, spelling] + ([] if value is None else [value])
                        code, job = self.run_job(*words, bash("exit 7"))
                        self.assert_code(7, code, job)
                        self.assert_presentable(job)
        self.assert_nothing_left()

    def test_refused_flags_print_one_line(self):
        for words, pattern in REFUSED:
            with self.subTest(words=words):
                code, job = self.run_job(*words, bash('touch "$FOLDER/started"'), env={"FOLDER": str(self.folder)})
                self.assert_code(USAGE, code, job)
                self.assertRegex(job.stderr, pattern)
                self.assertEqual(1, len(job.stderr.strip().splitlines()), job.stderr)
                self.assertFalse((self.folder / "started").exists())

    def test_knows_every_flag_of_torchrun_and_deepspeed(self):
        for tool, place in PARSERS.items():
            for parser in ROOT.glob(place):
                flags = sorted(set(flags_of(parser.read_text())))
                self.assertGreater(len(flags), 25, parser)
                for flag in flags:
                    with self.subTest(tool=tool, flag=flag):
                        # This fails because a value or a program is missing, or because the flag is refused.
                        _, job = self.run_job(flag)
                        self.assertNotRegex(job.stderr, "unknown option|could be one of")
                        self.assertRegex(job.stderr, "needs a value|nothing to run")

    def test_variables_of_torchrun_are_defaults(self):
        code, job = self.run_job(bash("exit $WORLD_SIZE"), env={"PET_NPROC_PER_NODE": "3"})
        self.assert_code(3, code, job)
        code, job = self.run_job("--num_gpus", "2", bash("exit $WORLD_SIZE"), env={"PET_NPROC_PER_NODE": "3"})
        self.assert_code(2, code, job)
        code, job = self.run_job("true", env={"PET_NNODES": "two"})
        self.assert_code(USAGE, code, job)
        self.assertIn("PET_NNODES must be", job.stderr)

    def test_run_file_gives_options(self):
        (self.folder / "dslaunch.yaml").write_text("launch:\n  nproc-per-node: 3\n  show: none\n")
        code, job = self.run_job(bash("echo seen; exit $WORLD_SIZE"))
        self.assert_code(3, code, job)
        self.assertIn("dslaunch.yaml gives --nproc_per_node, --show", job.stderr)
        (self.folder / "dslaunch.yaml").write_text("launch:\n  num_gpu: 3\n")
        code, job = self.run_job("true")
        self.assert_code(65, code, job)
        self.assertRegex(job.stderr, r"dslaunch\.yaml:2:3: unknown option 'num_gpu', did you mean 'num_gpus'\?")


if __name__ == "__main__":
    main()
