"""Tests the installed tree after a move to another folder.
Users' programs and plugins are built against the tree with plain CMake. They run alone and by `dslaunch`, which
finds its agent, trainer and recipes there."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest

BUILD = os.environ["DSLAUNCH_BUILD_DIR"]
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BAD_INPUT = 65

ALONE = ("mnist_mlp", "plugin_model", "plugin_data")
# The other examples, each with its own CMakeLists.txt, are in one project that parses LibTorch's headers once. They are
# compiled with dslaunch's compiler, and the single examples with the system's.
PROGRAMS = """
cmake_minimum_required(VERSION 3.18)
project(programs CXX)
set(CMAKE_BUILD_TYPE Release)
find_package(dslaunch REQUIRED)
add_library(headers OBJECT headers.cc)
target_link_libraries(headers PRIVATE dslaunch::dslaunch)
target_precompile_headers(headers PRIVATE <dslaunch/dslaunch.h>)
foreach(name mnist_pipeline horovod_mlp horovod_elastic diloco_mlp replicator_mlp data_parallel_mlp parameter_server_mlp)
  add_subdirectory(../examples/${name} ${name})
  target_precompile_headers(${name} REUSE_FROM headers)
endforeach()
"""


def environment():
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("DSLAUNCH_", "GLOO_", "TORCH"))}
    return dict(kept, OMP_NUM_THREADS="1")


def run(*command, cwd=None, timeout_s=100, **variables):
    return subprocess.run(command, cwd=cwd, env=dict(environment(), **variables), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=timeout_s)


def checked(*command, **options):
    ended = run(*command, **options)
    if ended.returncode != 0:
        raise AssertionError("%s: exit code %d\n%s%s" % (command, ended.returncode, ended.stdout, ended.stderr))
    return ended


def files_below(folder):
    return [os.path.join(path, name) for path, _, names in os.walk(folder) for name in names]


class InstalledTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="dslaunch-installed-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        checked("cmake", "--install", BUILD, "--prefix", cls.folder + "/first")
        cls.prefix = cls.folder + "/moved"
        os.rename(cls.folder + "/first", cls.prefix)
        cls.dslaunch = cls.prefix + "/bin/dslaunch"
        shutil.copytree(SOURCE + "/examples", cls.folder + "/examples")
        cls.programs = cls.folder + "/programs"
        os.mkdir(cls.programs)
        with open(cls.programs + "/CMakeLists.txt", "w") as file:
            file.write(PROGRAMS)
        with open(cls.programs + "/headers.cc", "w"):
            pass
        with open(BUILD + "/CMakeCache.txt") as cache:
            compiler = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.*)$", cache.read(), re.M)[1]
        examples = [cls.folder + "/examples/" + name for name in ALONE]
        for folder, options in ((cls.programs, ["-DCMAKE_CXX_COMPILER=" + compiler]), *((example, []) for example in examples)):
            checked("cmake", "-S", folder, "-B", folder + "/build", "-DCMAKE_PREFIX_PATH=" + cls.prefix, *options)
            checked("cmake", "--build", folder + "/build", "--parallel", "2", timeout_s=400)
        cls.program = cls.folder + "/examples/mnist_mlp/build/mnist_mlp"
        cls.plugin_folder = cls.folder + "/examples/plugin_model"
        cls.plugin = cls.plugin_folder + "/build/libmine.so"

    def test_tree_does_not_refer_to_build_folder(self):
        for file in files_below(self.prefix + "/lib/cmake") + files_below(self.prefix + "/include"):
            with open(file) as text:
                content = text.read()
            self.assertNotIn(BUILD, content, file)
            self.assertNotIn(SOURCE, content, file)
        for name in os.listdir(self.prefix + "/bin"):
            dynamic = checked("readelf", "-d", self.prefix + "/bin/" + name).stdout
            for paths in re.findall(r"(?:RPATH|RUNPATH).*\[(.*)\]", dynamic):
                self.assertTrue(paths.startswith("$ORIGIN/"), paths)

    def check_example(self, ended):
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        losses = [float(loss) for loss in re.findall(r"step \d+: loss (\d\.\d+)", ended.stdout)]
        self.assertEqual(len(losses), 5, ended.stdout)
        self.assertLess(losses[-1], 0.65)

    def test_program_runs_alone_and_spawns_ranks(self):
        self.check_example(run(self.program))
        self.check_example(run(self.program, "2"))

    def test_pipeline_runs_on_two_stages_and_replicas(self):
        self.check_example(run(self.programs + "/build/mnist_pipeline/mnist_pipeline", "4"))

    def test_horovod_program_runs(self):
        program = self.programs + "/build/horovod_mlp/horovod_mlp"
        self.check_example(run(program))
        self.check_example(run(program, "2"))

    def test_data_parallel_program_runs(self):
        self.check_example(run(self.programs + "/build/data_parallel_mlp/data_parallel_mlp"))

    def test_parameter_server_program_runs(self):
        program = self.programs + "/build/parameter_server_mlp/parameter_server_mlp"
        self.check_example(run(program))
        ended = run(self.dslaunch, "-np", "2", "--device", "cpu", "--log_dir", self.folder + "/logs", program)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        losses = [float(loss) for loss in re.findall(r"step \d+: loss (\d\.\d+)", ended.stdout)]
        self.assertEqual(len(losses), 5, ended.stdout)
        self.assertLess(losses[-1], 0.65)

    def test_example_programs_are_short(self):
        for name in ("horovod_mlp", "horovod_elastic", "diloco_mlp", "replicator_mlp", "data_parallel_mlp", "parameter_server_mlp"):
            with open(self.folder + "/examples/%s/%s.cc" % (name, name)) as source:
                self.assertLess(len(source.readlines()), 60, name)

    def test_diloco_and_local_sgd_program_runs(self):
        program = self.programs + "/build/diloco_mlp/diloco_mlp"
        for mode in "diloco", "local_sgd":
            with self.subTest(mode):
                ended = run(self.dslaunch, "--num_gpus", "2", "--device", "cpu", "--log_dir", self.folder + "/logs",
                            program, mode)
                self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
                losses = [float(loss) for loss in re.findall(r"step \d+: loss (\d\.\d+)", ended.stdout)]
                self.assertEqual(len(losses), 5, ended.stdout)
                self.assertLess(losses[-1], 0.65)

    def test_elastic_job_survives_loss_of_a_rank(self):
        program = self.programs + "/build/horovod_elastic/horovod_elastic"
        killed = ('if [ $DSLAUNCH_ATTEMPT.$RANK = 1.1 ]; then'
                  '  (until ls $DSLAUNCH_RANK_DIR/../../elastic/node_0/commit.1.3.*; do sleep 0.02; done; kill -9 $$) &'
                  'fi >/dev/null 2>&1; exec ' + program)
        ended = run(self.dslaunch, "--num_gpus", "2", "--device", "cpu", "--max_restarts", "1", "--log_dir",
                    self.folder + "/logs", "bash", "-c", killed)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        self.assertRegex(ended.stdout + ended.stderr, r"elastic: begins from commit 1\.[3-9] of rank 0")
        losses = re.findall(r"epoch (\d): loss (\d\.\d+)", ended.stdout)
        self.assertIn(len(losses), (10, 11), ended.stdout)  # one loss may be lost before its commit
        self.assertLess(float(losses[-1][1]), 0.65)

    def test_replicator_program_runs_on_any_replicas(self):
        program = self.programs + "/build/replicator_mlp/replicator_mlp"
        self.check_example(run(program))
        losses = []
        for nodes, ranks in (1, 1), (1, 4), (2, 2):
            ended = run(self.dslaunch, "--launcher", "local", "--num_nodes", str(nodes), "--num_gpus", str(ranks),
                        "--device", "cpu", "--log_dir", self.folder + "/logs", program)
            self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
            losses.append(re.findall(r"step \d+: loss (\d\.\d+)", ended.stdout))
            self.assertEqual(len(losses[-1]), 5, ended.stdout)
        for other in losses[1:]:
            for one, same in zip(losses[0], other):
                self.assertAlmostEqual(float(one), float(same), delta=2e-3)

    def test_launcher_runs_program(self):
        ended = run(self.dslaunch, "--num_gpus", "2", "--device", "cpu", "--log_dir", self.folder + "/logs", self.program)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        self.assertRegex(ended.stdout, r"step 250: loss 0\.[0-5]")

    def train(self, *arguments, ranks=2):
        """Runs `dslaunch train`, and returns the losses of its steps."""
        with tempfile.NamedTemporaryFile("r") as metrics:
            ended = run(self.dslaunch, "--num_gpus", str(ranks), "--device", "cpu", "--log_dir", self.folder + "/logs",
                        "train", *arguments, "--metrics_jsonl", metrics.name, cwd=self.plugin_folder)
            self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
            return [record["loss"] for record in map(json.loads, metrics) if "loss" in record]

    def test_trains_installed_recipe(self):
        losses = self.train("fashion_mnist", "--steps", "40")
        self.assertEqual(len(losses), 40)
        self.assertLess(sum(losses[-5:]) / 5, 0.6 * sum(losses[:5]) / 5)

    def test_trains_model_of_plugin(self):
        for ranks, options in (1, []), (2, ["--plugin", self.plugin, "--set", "model.params.depth=1"]):
            losses = self.train("mine.yaml", "--steps", "40", *options, ranks=ranks)
            self.assertEqual(len(losses), 40)
            self.assertLess(sum(losses[-5:]) / 5, 0.6 * sum(losses[:5]) / 5)

    def test_trains_on_data_and_metric_of_plugin(self):
        folder = self.folder + "/examples/plugin_data"
        listed = run(self.dslaunch, "train", "--list", "--plugin", folder + "/build/libspirals.so")
        self.assertRegex(listed.stdout, r"(?m)^dataset +spirals .*\n^metric +top_k ")
        ended = run(self.dslaunch, "--num_gpus", "2", "--device", "cpu", "--log_dir", self.folder + "/logs", "--json", "train",
                    "spirals.yaml", cwd=folder)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        result = json.loads(ended.stdout.splitlines()[-1])["result"]
        self.assertEqual(result["samples"], 600)
        self.assertGreater(result["accuracy"], 0.6)
        self.assertGreater(result["top_k"], result["accuracy"])

    def check_refused(self, path, *words, params=None):
        recipe = {"model": {"type": "plugin", "path": path, "params": params or {"depth": 1, "width": 8}},
                  "data": {"type": "idx", "path": "/usr/share/datasets/fashion-mnist"},
                  "run": {"steps": 1}, "engine": {"train_batch_size": 8, "optimizer": {"type": "SGD"}}}
        ended = run(self.prefix + "/bin/dslaunch-train", DSLAUNCH_RECIPE=json.dumps(recipe))
        self.assertEqual(ended.returncode, BAD_INPUT, ended.stderr)
        self.assertEqual(ended.stderr.count("\n"), 1, ended.stderr)
        for word in (path,) + words:
            self.assertIn(word, ended.stderr)

    def library(self, name, source):
        path = "%s/%s" % (self.folder, name)
        with open(path + ".c", "w") as file:
            file.write(source)
        checked("cc", "-shared", "-fPIC", "-o", path, path + ".c")
        return path

    def test_reports_wrong_plugins(self):
        self.check_refused(self.library("libother.so", 'struct { const char* stamp; void* make; } dslaunch_plugin = {'
                                        '"dslaunch 0.0.9, LibTorch 2.10.0, _GLIBCXX_USE_CXX11_ABI=0", 0};'),
                           "was built for dslaunch 0.0.9, LibTorch 2.10.0, _GLIBCXX_USE_CXX11_ABI=0", "LibTorch 2.11.0")
        self.check_refused(self.library("libnone.so", "int nothing;"), "defines no model", "DSLAUNCH_PLUGIN")
        self.check_refused(self.folder + "/nowhere.so", "does not exist", "model.path")
        with open(self.folder + "/text.so", "w") as file:
            file.write("no library")
        self.check_refused(self.folder + "/text.so", "cannot be loaded", "LibTorch 2.11.0")
        self.check_refused(self.plugin, "cannot make the model: model.params.width is missing", params={"depth": 1})
        self.check_refused(self.plugin, "cannot make the model: depth and width must be at least 1",
                           params={"depth": 0, "width": 8})


if __name__ == "__main__":
    unittest.main()
