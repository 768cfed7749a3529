#include "cli/options/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <regex>
#include <sstream>

#include "cli/options/option_table.h"
#include "tests/support/temp_dir.h"

namespace dslaunch::options_test {
namespace {

using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Mode = LaunchOptions::Mode;

Result<LaunchOptions> Parse(const std::vector<std::string>& arguments) {
  std::vector<const char*> argv = {"dslaunch"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  return ParseOptions(static_cast<int>(argv.size()), argv.data());
}

LaunchOptions Good(const std::vector<std::string>& arguments) {
  Result<LaunchOptions> options = Parse(arguments);
  EXPECT_TRUE(options.ok()) << options.error().message;
  return options.ok() ? *options : LaunchOptions();
}

TEST(ParseOptions, HasDocumentedDefaults) {
  const LaunchOptions options = Good({"./prog"});
  EXPECT_EQ(options.mode, Mode::kProgram);
  EXPECT_THAT(options.program, ElementsAre("./prog"));
  EXPECT_FALSE(options.num_nodes || options.num_gpus || options.hostfile || options.launcher);
  EXPECT_EQ(options.device, DeviceChoice::kAuto);
  EXPECT_EQ(options.master_port, 0);
  EXPECT_FALSE(options.shown_ranks.all);
  EXPECT_THAT(options.shown_ranks.ranks, ElementsAre(0));
  EXPECT_EQ(options.grace_ms, 10'000);
  EXPECT_EQ(options.connect_timeout_ms, 20'000);
}

TEST(ParseOptions, ReadsEveryOptionInEverySpelling) {
  const std::vector<std::vector<std::string>> spellings = {
      {"--num_nodes",
       "2",
       "--num_gpus",
       "4",
       "--hostfile",
       "hf",
       "--launcher",
       "ssh",
       "--device",
       "cuda",
       "--master_port",
       "29500",
       "--show",
       "3,0,3",
       "--log_dir",
       "/l",
       "--grace",
       "0.5",
       "--connect_timeout",
       "7",
       "p"},
      {"--num-nodes=2", "--num-accelerators=4", "-H", "hf", "--launcher=SSH", "--device=Cuda",
       "--master-port=29500", "--show=0,3", "--log-dir=/l", "--grace=0.5", "--connect-timeout=7",
       "p"},
      {"--num_nodes=2",
       "--num_accelerators",
       "4",
       "-Hhf",
       "--launcher",
       "ssh",
       "--device",
       "cuda",
       "--master-port",
       "29500",
       "--show",
       "0,3",
       "--log-dir",
       "/l",
       "--grace",
       "5e-1",
       "--connect-timeout",
       "7.0",
       "--",
       "p"},
  };
  for (const auto& arguments : spellings) {
    SCOPED_TRACE(testing::PrintToString(arguments));
    const LaunchOptions options = Good(arguments);
    EXPECT_EQ(options.num_nodes, 2);
    EXPECT_EQ(options.num_gpus, 4);
    EXPECT_EQ(options.hostfile, "hf");
    EXPECT_EQ(options.launcher, Launcher::kSsh);
    EXPECT_EQ(options.device, DeviceChoice::kCuda);
    EXPECT_EQ(options.master_port, 29500);
    EXPECT_THAT(options.shown_ranks.ranks, ElementsAre(0, 3));
    EXPECT_EQ(options.log_dir, "/l");
    EXPECT_EQ(options.grace_ms, 500);
    EXPECT_EQ(options.connect_timeout_ms, 7000);
    EXPECT_THAT(options.program, ElementsAre("p"));
  }
}

TEST(ParseOptions, TimeLimitAppliesToJobOrTrainer) {
  EXPECT_EQ(Good({"p"}).time_limit_ms, 0);
  EXPECT_EQ(Good({"--time_limit", "1.5", "p"}).time_limit_ms, 1500);
  const LaunchOptions train = Good({"--time_limit", "1.5", "train"});
  EXPECT_EQ(train.time_limit_ms, 0);
  EXPECT_EQ(train.train.time_limit_s, 1.5);
  EXPECT_EQ(Good({"--time_limit", "9", "train", "--time_limit", "3"}).train.time_limit_s, 3);
}

TEST(ParseOptions, ReadsVariablesLikeMpirun) {
  EXPECT_THAT(Good({"-x", "HOME", "--env", "A=1", "-xB=2", "--chdir", "/d", "p"}).env,
              ElementsAre("HOME", "A=1", "B=2"));
  EXPECT_EQ(Good({"--chdir", "sub", "p"}).chdir, "sub");
}

TEST(ParseOptions, KeepsOrderOfFilesToCopy) {
  const LaunchOptions options =
      Good({"--copy", "b", "--copy-dir", "d", "--copy=a", "--copy_dir", "e/", "./b"});
  EXPECT_THAT(options.copy_files, ElementsAre("b", "a"));
  EXPECT_THAT(options.copy_folders, ElementsAre("d", "e/"));
  EXPECT_THAT(options.program, ElementsAre("./b"));
}

TEST(ParseOptions, ReadsShortNames) {
  const LaunchOptions options = Good({"-N", "2", "-n", "4", "p"});
  EXPECT_EQ(options.num_nodes, 2);
  EXPECT_EQ(options.num_gpus, 4);
  EXPECT_EQ(Good({"-V"}).mode, Mode::kVersion);
  EXPECT_EQ(Good({"version"}).mode, Mode::kVersion);
  EXPECT_EQ(Good({"version", "--help"}).mode, Mode::kHelp);
  EXPECT_EQ(Good({"train", "--list"}).mode, Mode::kRecipeCommand);
  EXPECT_EQ(Good({"train", "--deepspeed", "--deepspeed_config", "f"}).train.deepspeed_config, "f");
}

TEST(ParseOptions, MessagesUseTheTypedName) {
  const auto said = [](const std::vector<std::string>& arguments) {
    const Result<LaunchOptions> options = Parse(arguments);
    return options.ok() ? std::string() : options.error().message;
  };
  EXPECT_THAT(said({"--num-accelerators", "0", "p"}),
              testing::StartsWith("--num_accelerators must"));
  EXPECT_THAT(said({"-n", "0", "p"}), testing::StartsWith("-n (--num_gpus) must"));
  EXPECT_THAT(said({"-n"}), testing::StartsWith("-n (--num_gpus) needs a value"));
  EXPECT_THAT(said({"-n", "2", "--nproc_per_node", "2", "p"}),
              testing::StartsWith("-n (--num_gpus) and --nproc_per_node exclude each other"));
  EXPECT_EQ(Good({"--nnodes", "2", "p"}).num_nodes_name, "--nnodes");
  EXPECT_EQ(Good({"--nproc_per_node", "2", "p"}).num_gpus_name, "--nproc_per_node");
}

TEST(ParseOptions, ReadsHangLimitOfSetup) {
  for (const char* given : {"--hang_s=setup=20m,300", "--hang_s=300,setup=1200"}) {
    const LaunchOptions options = Good({given, "p"});
    EXPECT_EQ(options.hang_ms, 300'000) << given;
    EXPECT_EQ(options.standstill_ms, 300'000) << given;
    EXPECT_EQ(options.setup_hang_ms, 1'200'000) << given;
  }
  const LaunchOptions options = Good({"--hang_s=setup=0", "p"});
  EXPECT_EQ(options.hang_ms, 60'000);
  EXPECT_EQ(options.standstill_ms, 600'000);
  EXPECT_EQ(options.setup_hang_ms, 0);
}

TEST(ParseOptions, ReadsOptionsForFailures) {
  const LaunchOptions none = Good({"p"});
  EXPECT_FALSE(none.max_restarts || none.min_nodes || none.max_nodes || none.json);
  EXPECT_EQ(none.restart_delay_ms, 1000);
  EXPECT_EQ(none.on_join, OnJoin::kNextRestart);
  EXPECT_EQ(none.on_hang, OnHang::kReport);
  EXPECT_EQ(none.hang_ms, 60'000);
  EXPECT_EQ(none.standstill_ms, 600'000);
  EXPECT_EQ(none.setup_hang_ms, 1'800'000);
  EXPECT_EQ(none.heartbeat_ms, 1000);
  EXPECT_EQ(none.suspect_ms, 3000);
  EXPECT_EQ(none.dead_ms, 6000);
  EXPECT_EQ(none.lease_ms, 60'000);
  EXPECT_EQ(none.log_max_mb, 1024);
  for (const bool dashes : {false, true}) {
    std::vector<std::string> arguments = {
        "--max_restarts=5", "--restart_delay_s=0.25", "--on_join=NOW",   "--on_hang=kill",
        "--hang_s=7.5",     "--heartbeat_s=0.2",      "--suspect_s=0.6", "--dead_s=2",
        "--lease_s=30",     "--log_max_mb=64",        "--json",          "p"};
    for (std::string& argument : arguments) {
      if (dashes) std::replace(argument.begin() + 1, argument.end(), '_', '-');
    }
    const LaunchOptions options = Good(arguments);
    EXPECT_EQ(options.max_restarts, 5);
    EXPECT_EQ(options.restart_delay_ms, 250);
    EXPECT_EQ(options.on_join, OnJoin::kNow);
    EXPECT_EQ(options.on_hang, OnHang::kKill);
    EXPECT_EQ(options.hang_ms, 7500);
    EXPECT_EQ(options.standstill_ms, 7500);
    EXPECT_EQ(options.setup_hang_ms, 7500);
    EXPECT_EQ(options.heartbeat_ms, 200);
    EXPECT_EQ(options.suspect_ms, 600);
    EXPECT_EQ(options.dead_ms, 2000);
    EXPECT_EQ(options.lease_ms, 30'000);
    EXPECT_EQ(options.log_max_mb, 64);
    EXPECT_TRUE(options.json);
  }
}

TEST(ParseOptions, ReadsNumberOfNodesInEverySpelling) {
  const struct {
    std::vector<std::string> arguments;
    std::optional<int> num, min, max;
  } cases[] = {
      {{"--nnodes", "2", "p"}, 2, {}, {}},
      {{"--nnodes=2:3", "p"}, {}, 2, 3},
      {{"--nnodes", "2:2", "p"}, {}, 2, 2},
      {{"--nnodes", "2:3", "--nnodes", "4", "p"}, 4, {}, {}},
      {{"--min-elastic-nodes", "2", "--max_elastic_nodes=3", "p"}, {}, 2, 3},
      {{"--min_elastic_nodes", "2", "p"}, {}, 2, {}},
      {{"--min_elastic_nodes", "2", "--num_nodes", "4", "p"}, {}, 2, 4},
      {{"--max_elastic_nodes", "3", "p"}, {}, 1, 3},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(testing::PrintToString(c.arguments));
    const LaunchOptions options = Good(c.arguments);
    EXPECT_EQ(options.num_nodes, c.num);
    EXPECT_EQ(options.min_nodes, c.min);
    EXPECT_EQ(options.max_nodes, c.max);
  }
}

TEST(ParseOptions, ReadsShownRanks) {
  EXPECT_TRUE(Good({"--show", "all", "p"}).shown_ranks.all);
  const ShownRanks none = Good({"--show", "none", "p"}).shown_ranks;
  EXPECT_FALSE(none.all);
  EXPECT_TRUE(none.ranks.empty());
}

TEST(ParseOptions, LastOccurrenceOfOptionCounts) {
  EXPECT_EQ(Good({"--num_nodes", "2", "--num-nodes=3", "p"}).num_nodes, 3);
}

TEST(ParseOptions, PassesArgumentsAfterProgramUnchanged) {
  const std::vector<std::string> program = {
      "train.py", "--help",  "--num_gpus", "x",  "--version", "train",     "--",
      "-H",       "a=[1,2]", "",           "ö ", "--no_such", "$HOME `id`"};
  std::vector<std::string> arguments = {"--num_gpus", "2"};
  arguments.insert(arguments.end(), program.begin(), program.end());
  const LaunchOptions options = Good(arguments);
  EXPECT_EQ(options.mode, Mode::kProgram);
  EXPECT_EQ(options.num_gpus, 2);
  EXPECT_EQ(options.program, program);
}

TEST(ParseOptions, DoubleDashEndsTheOptions) {
  EXPECT_THAT(Good({"--num_gpus", "2", "--", "-odd-name", "x"}).program,
              ElementsAre("-odd-name", "x"));
  EXPECT_THAT(Good({"-", "x"}).program, ElementsAre("-", "x"));
}

TEST(ParseOptions, AcceptsModuleNamedLikeCommand) {
  for (const std::string name : {"train", "predict", "report", "doctor", "help"}) {
    for (const char* option : {"-m", "--module", "--no_python", "--run_path"}) {
      const LaunchOptions options = Good({"--num_gpus", "2", option, name, "--lr", "1"});
      EXPECT_EQ(options.mode, Mode::kProgram) << option << " " << name;
      EXPECT_EQ(options.program, (std::vector<std::string>{name, "--lr", "1"}));
    }
  }
}

TEST(ParseOptions, ReadsTrainOptions) {
  const LaunchOptions options =
      Good({"--num_gpus", "2", "train", "--steps", "100", "fashion_mnist", "--seed=0", "--data",
            "/d", "--set", "engine.optimizer.params.lr=1e-3", "--set=run.tags=[a, b]",
            "--metrics-jsonl", "m.jsonl"});
  EXPECT_EQ(options.mode, Mode::kTrain);
  EXPECT_EQ(options.train.recipe, "fashion_mnist");
  EXPECT_EQ(options.train.steps, 100);
  EXPECT_FALSE(options.train.epochs);
  EXPECT_EQ(options.train.seed, 0);
  EXPECT_EQ(options.train.data, "/d");
  EXPECT_EQ(options.train.metrics_jsonl, "m.jsonl");
  EXPECT_THAT(options.train.sets,
              ElementsAre("engine.optimizer.params.lr=1e-3", "run.tags=[a, b]"));
  const TrainOptions saving = Good({"train", "--checkpoint-dir", "c", "--save_every=5",
                                    "--memory-checkpoint", "20", "--resume", "none"})
                                  .train;
  EXPECT_EQ(saving.checkpoint_dir, "c");
  EXPECT_EQ(saving.save_every, 5);
  EXPECT_EQ(saving.memory_checkpoint, 20);
  EXPECT_EQ(saving.resume, "none");
  EXPECT_FALSE(saving.async_save || saving.load_module_only);
  const TrainOptions more =
      Good({"train", "--checkpoint_dir", "c", "--async-save", "--load_module_only"}).train;
  EXPECT_TRUE(more.async_save && more.load_module_only);
  EXPECT_FALSE(Good({"train"}).train.recipe);
  EXPECT_EQ(Good({"train", "--epochs", "3", "--", "-x.yaml"}).train.recipe, "-x.yaml");
}

TEST(ParseOptions, ReadsEveryTrainOption) {
  using Task = TrainOptions::Task;
  const TrainOptions train =
      Good({"train", "r.yaml", "--deepspeed_config", "ds.json", "--plugin=libmine.so",
            "--init-weights", "w", "--resume-from", "ds", "--export_hf", "hf", "--trace", "t",
            "--time_limit", "1.5", "--deterministic", "--profile", "--profile-sort", "memory"})
          .train;
  EXPECT_EQ(train.task, Task::kTrain);
  EXPECT_EQ(train.deepspeed_config, "ds.json");
  EXPECT_EQ(train.plugin, "libmine.so");
  EXPECT_EQ(train.init_weights, "w");
  EXPECT_EQ(train.resume_from, "ds");
  EXPECT_EQ(train.export_hf, "hf");
  EXPECT_EQ(train.trace, "t");
  EXPECT_TRUE(train.profile);
  EXPECT_EQ(train.profile_sort, "memory");
  EXPECT_EQ(Good({"train", "--compare_precision", "r"}).train.task, Task::kComparePrecision);
  EXPECT_EQ(train.time_limit_s, 1.5);
  EXPECT_TRUE(train.deterministic);
  EXPECT_EQ(Good({"train", "--eval_only", "r"}).train.task, Task::kEvaluate);
  EXPECT_EQ(Good({"train", "--plan-memory", "--steps", "3"}).train.task, Task::kPlanMemory);
  const LaunchOptions planned = Good({"-n", "8", "train", "--plan_memory", "--ranks", "1024"});
  EXPECT_EQ(planned.train.ranks, 1024);
  EXPECT_EQ(planned.train.ranks_per_node, 8);
  EXPECT_EQ(planned.num_gpus, 1) << "one process plans for all";
  const TrainOptions drawn = Good({"train", "--plan_pipeline", "--pipeline-svg", "p.svg"}).train;
  EXPECT_EQ(drawn.task, Task::kPlanPipeline);
  EXPECT_EQ(drawn.pipeline_svg, "p.svg");
}

TEST(ParseOptions, ReadsTuneOptions) {
  const LaunchOptions options =
      Good({"-n", "2", "--json", "tune", "r.yaml", "--budget", "90", "-o", "f.yaml", "--set",
            "engine.train_batch_size=8", "--data", "d"});
  EXPECT_EQ(options.mode, Mode::kTune);
  EXPECT_EQ(options.train.recipe, "r.yaml");
  EXPECT_EQ(options.train.data, "d");
  EXPECT_EQ(options.tune.budget_s, 90);
  EXPECT_EQ(options.tune.output, "f.yaml");
  EXPECT_TRUE(options.json);
  EXPECT_FALSE(options.tune.then_train);
  EXPECT_THAT(options.tune.launch_words, ElementsAre("--num_gpus", "2"));
  EXPECT_TRUE(Good({"tune", "--json"}).json);
}

TEST(ParseOptions, AutotuningBeforeTrainIsTune) {
  const LaunchOptions options =
      Good({"--autotuning", "run", "-n", "2", "train", "r.yaml", "--steps", "9"});
  EXPECT_EQ(options.mode, Mode::kTune);
  EXPECT_TRUE(options.tune.then_train);
  EXPECT_THAT(options.tune.launch_words, ElementsAre("--num_gpus", "2"));
  EXPECT_THAT(options.tune.train_words, ElementsAre("r.yaml", "--steps", "9"));
  EXPECT_FALSE(Good({"--autotuning", "tune", "train"}).tune.then_train);
  EXPECT_EQ(Good({"--autotuning", "", "train"}).mode, Mode::kTrain);
}

TEST(ParseOptions, ReadsPredictOptions) {
  const LaunchOptions options = Good({"--num_gpus",
                                      "2",
                                      "predict",
                                      "r.yaml",
                                      "--checkpoint_dir",
                                      "c",
                                      "--output",
                                      "o",
                                      "--prompt",
                                      "To be",
                                      "--max_new_tokens",
                                      "7",
                                      "--temperature",
                                      "0.8",
                                      "--top_k=40",
                                      "--top_p",
                                      "0.9",
                                      "--stop",
                                      "a",
                                      "--stop",
                                      "b,c",
                                      "--tokenizer",
                                      "t",
                                      "--set",
                                      "data.block_size=8",
                                      "--deepspeed_config",
                                      "ds.json"});
  EXPECT_EQ(options.mode, Mode::kTrain);
  const TrainOptions& predict = options.train;
  EXPECT_EQ(predict.task, TrainOptions::Task::kPredict);
  EXPECT_EQ(predict.recipe, "r.yaml");
  EXPECT_EQ(predict.checkpoint_dir, "c");
  EXPECT_EQ(predict.output, "o");
  EXPECT_EQ(predict.prompt, "To be");
  EXPECT_EQ(predict.max_new_tokens, 7);
  EXPECT_EQ(predict.temperature, 0.8);
  EXPECT_EQ(predict.top_k, 40);
  EXPECT_EQ(predict.top_p, 0.9);
  EXPECT_THAT(predict.stop, ElementsAre("a", "b,c"));
  EXPECT_EQ(predict.tokenizer, "t");
  EXPECT_EQ(Good({"predict", "--prompts", "p", "--top_k", "1"}).train.prompts, "p");
  EXPECT_EQ(Good({"train", "--eval_only", "--eval_file", "f"}).train.eval_file, "f");
  EXPECT_THAT(predict.sets, ElementsAre("data.block_size=8"));
  EXPECT_EQ(Good({"./predict", "--help"}).mode, Mode::kProgram);
}

TEST(ParseOptions, KeepsValuesByteForByte) {
  for (const std::string value : {"[a,b]", "-1", "a=b", "'quoted'", "{x}", "a b", "%s", "\\n"}) {
    EXPECT_EQ(Good({"train", "--data", value}).train.data, value);
    EXPECT_EQ(Good({"train", "--data=" + value, "--seed", "1"}).train.data, value);
    EXPECT_EQ(Good({"--log_dir", value, "p"}).log_dir, value);
    EXPECT_THAT(Good({"train", "--set", value, "--set", value}).train.sets,
                ElementsAre(value, value));
  }
}

TEST(ParseOptions, ErrorsNameTheArgumentAndTheHint) {
  const struct {
    std::vector<std::string> arguments;
    std::string message;
  } cases[] = {
      {{}, "nothing to run: give 'train' or a program"},
      {{"--num_nodes", "2"}, "nothing to run"},
      {{"--"}, "nothing to run"},
      {{""}, "the program's name is empty"},
      {{"run.yaml"}, "'run.yaml' is not a program; start a launch file with --run_file run.yaml"},
      {{"--num_nodes", "0", "p"}, "--num_nodes must be a whole number from 1 to 1000000, not '0'"},
      {{"--num_nodes", "-1", "p"},
       "--num_nodes must be a whole number from 1 to 1000000, not '-1'"},
      {{"--num_nodes", "abc", "p"}, "not 'abc'"},
      {{"--num_nodes", "2x", "p"}, "not '2x'"},
      {{"--num_nodes", "99999999999999999999", "p"}, "not '99999999999999999999'"},
      {{"--num_nodes=", "p"}, "--num_nodes must be a whole number from 1 to 1000000, not ''"},
      {{"--num_nodes"}, "--num_nodes needs a value"},
      {{"--num_nodes", "--num_gpus", "2", "p"}, "--num_nodes needs a value"},
      {{"--num_gpus", "0", "p"}, "--num_gpus must be a whole number from 1 to 4096, not '0'"},
      {{"--num_gpus", "4097", "p"}, "not '4097'"},
      {{"--master_port", "65536", "p"},
       "--master_port must be a whole number from 0 to 65535, not '65536'"},
      {{"--launcher", "kubectl", "p"},
       "--launcher must be one of local, ssh, slurm, openmpi, pdsh, pbs, lsf, not 'kubectl'"},
      {{"--device", "tpu", "p"},
       "--device must be one of auto, cuda, rocm, xpu, npu, hpu, mlu, cpu, not 'tpu'"},
      {{"--show", "0,", "p"}, "--show must be all, none or ranks such as 0,3, not '0,'"},
      {{"--show", "x", "p"}, "--show: each rank must be a whole number"},
      {{"--show", "", "p"}, "--show must be all, none or ranks"},
      {{"--tee", "all", "p"}, "shown with --show all"},
      {{"--tee", "none", "p"}, "shown with --show none"},
      {{"--tee", "0,3", "p"}, "shown with --show 0,3"},
      {{"--tee", "12", "p"}, "shown with --show 12"},
      {{"--tee", "", "p"}, "--tee must be 0 (no stream)"},
      {{"--tee", "4", "p"}, "--tee must be 0 (no stream)"},
      {{"--grace", "-1", "p"},
       "--grace must be seconds, 0 to 86400, or a time such as 90s, 10m, 2h or 1d, not '-1'"},
      {{"--grace", "10x", "p"}, "not '10x'"},
      {{"--grace", "nan", "p"}, "not 'nan'"},
      {{"--connect_timeout", "0", "p"},
       "--connect_timeout must be seconds, 0.1 to 86400, or a time such as 90s, 10m, 2h or 1d, not "
       "'0'"},
      {{"--nnodes", "3:2", "p"}, "MIN must not be more than MAX, as in '3:2'"},
      {{"--nnodes", "2:", "p"}, "--nnodes MIN:MAX: each of them must be a whole number"},
      {{"--nnodes", "1:2:3", "p"}, "not '2:3'"},
      {{"--nnodes", "0", "p"}, "--nnodes must be a whole number from 1"},
      {{"--nnodes", "2", "--num_nodes", "2", "p"}, "--nnodes and --num_nodes exclude each other"},
      {{"--nnodes", "2:3", "--min_elastic_nodes", "2", "p"}, "exclude each other"},
      {{"--num_nodes", "2", "--max_elastic_nodes", "3", "p"},
       "both set the greatest number of nodes"},
      {{"--min_elastic_nodes", "3", "--num_nodes", "2", "p"},
       "--min_elastic_nodes 3 is more than the 2 nodes there may be"},
      {{"--min_np", "4", "--max_np", "2", "p"}, "--min_np (4) is more than --max_np (2)"},
      {{"-np", "4", "--max_np", "2", "p"}, "--min_np (4) is more than --max_np (2)"},
      {{"-np", "9", "--min_np", "2", "--max_np", "8", "p"}, "-np (9) is more than --max_np (8)"},
      {{"-np", "1", "--min_np", "2", "p"}, "--min_np (2) is more than -np (1)"},
      {{"--min_np", "2", "--nnodes", "1:2", "p"}, "exclude each other"},
      {{"--min_np", "2", "--no_ssh", "p"}, "exclude each other"},
      {{"--heartbeat_s", "3", "p"}, "--heartbeat_s (3 s) must be less than --suspect_s (3 s)"},
      {{"--dead_s", "2.5", "p"}, "--suspect_s (3 s) must be less than --dead_s (2.5 s)"},
      {{"--restart_delay_s", "31", "p"},
       "--restart_delay_s must be seconds, 0 to 30, or a time such as 90s, 10m, 2h or 1d, not "
       "'31'"},
      {{"--max_restarts", "-1", "p"}, "--max_restarts must be a whole number from 0"},
      {{"--on_join", "later", "p"}, "--on_join must be one of next, now, not 'later'"},
      {{"--hang_s", "setup=x", "p"}, "--hang_s must be seconds, 0 to 86400, or a time"},
      {{"--on_hang", "die", "p"}, "--on_hang must be one of report, kill, restart, not 'die'"},
      {{"--json=1", "p"}, "--json takes no value"},
      {{"--hostfile", "", "p"}, "--hostfile needs a value that is not empty"},
      {{"--launhcer", "2", "p"}, "unknown option '--launhcer', did you mean --launcher?"},
      {{"--connect_time", "2", "p"},
       "unknown option '--connect_time', did you mean --connect_timeout?"},
      {{"-include", "x", "p"}, "unknown option '-include', did you mean --include?"},
      {{"--num-ndoes=2", "p"}, "unknown option '--num-ndoes', did you mean --num_nodes?"},
      {{"-num_gpus", "2", "p"}, "unknown option '-num_gpus', did you mean --num_gpus?"},
      {{"--log", "x", "p"}, "option '--log' could be one of --log_level, --log_dir, --logs_specs"},
      {{"---", "p"}, "option '---' is not supported"},
      {{"--=1", "p"}, "option '--' is not supported"},
      {{"--help=1", "p"}, "--help takes no value"},
      {{"train", "a", "b"}, "train takes one recipe, but got 'a' and 'b'"},
      {{"train", "--steps", "0"}, "--steps must be a whole number from 1"},
      {{"train", "--seed", "-1"}, "--seed must be a whole number from 0"},
      {{"train", "--steps", "1", "--epochs", "1"}, "--steps and --epochs exclude each other"},
      {{"train", "--stpes", "1"}, "unknown option '--stpes', did you mean --steps?"},
      {{"train", "--num-gpus", "2"}, "option '--num-gpus' belongs before 'train'"},
      {{"train", "-n2"}, "option '-n' belongs before 'train'"},
      {{"train", "-np", "2"}, "option '-np' belongs before 'train'"},
      {{"train", "--log", "x"}, "option '--log' belongs before 'train'"},
      {{"train", "-hostfile", "x"}, "option '-hostfile' belongs before 'train'"},
      {{"bench", "comm", "--num_gpus", "2"}, "option '--num_gpus' belongs before 'bench'"},
      {{"--rdzv_port", "29600", "--master_port", "29600", "p"},
       "--rdzv_port 29600 is the port of --master_port too, and node 0 needs one for each"},
      {{"--nnodes", "2", "--rdzv_endpoint", "n0:29600", "--rdzv_port", "29600", "p"},
       "--rdzv_port 29600 is the port of --rdzv_endpoint too"},
      {{"--steps", "2", "train"}, "option '--steps' belongs after 'train'"},
      {{"train", "--set"}, "--set needs a value"},
      {{"train", "--prompt", "x"}, "option '--prompt' belongs after 'predict'"},
      {{"predict", "--steps", "1"}, "option '--steps' belongs after 'train'"},
      {{"predict", "--num_gpus", "1"}, "option '--num_gpus' belongs before 'predict'"},
      {{"--top_k", "1", "predict"}, "option '--top_k' belongs after 'predict'"},
      {{"predict", "a", "b"}, "predict takes one recipe, but got 'a' and 'b'"},
      {{"tune", "a", "b"}, "tune takes one recipe, but got 'a' and 'b'"},
      {{"tune", "--budget", "0"}, "--budget must be seconds, 1 to "},
      {{"tune", "--steps", "1"}, "option '--steps' belongs after 'train'"},
      {{"--budget", "9", "tune"}, "option '--budget' belongs after 'tune'"},
      {{"--detach", "tune"}, "tune waits for each of its jobs; leave --detach out"},
      {{"--dry_run", "tune"}, "tune has no single job to show"},
      {{"--autotuning", "run", "predict"}, "--autotuning is for recipes of the built-in trainer"},
      {{"predict", "--temperature", "-1"},
       "--temperature must be a number, 0 to 1000000, not '-1'"},
      {{"--env", "s3cret!", "p"}, "--env must be NAME=VALUE, or NAME for a variable of this"},
      {{"--env", "=1", "p"}, "--env must be NAME=VALUE, or NAME for a variable of this"},
      {{"--env", "", "p"}, "--env must be NAME=VALUE, or NAME for a variable of this"},
      {{"--ssh_port", "0", "p"}, "--ssh_port must be a whole number from 1 to 65535, not '0'"},
      {{"--ssh_command", "", "p"}, "--ssh_command needs a value that is not empty"},
      {{"--ssh_command", "ssh -o 'A b'", "p"}, "is split at blanks, without a shell"},
      {{"--launcher_args", "$(id)", "p"}, "is split at blanks, without a shell"},
      {{"--ssh_port", "22", "--launcher", "local", "p"}, "--ssh_port is for SSH"},
      {{"-i", "a", "-e", "b", "p"}, "-i (--include) and -e (--exclude) exclude each other"},
      {{"-i", "a", "--num_nodes", "2", "p"}, "-i (--include) and --num_nodes exclude each other"},
      {{"-e", "a", "--num_gpus", "2", "p"}, "-e (--exclude) and --num_gpus exclude each other"},
      {{"--num_gpus", "2", "--nproc_per_node", "auto", "p"}, "exclude each other"},
      {{"--nproc_per_node", "tpu", "p"}, "--nproc_per_node must be one of auto, cpu, gpu"},
      {{"--nproc_per_node", "0", "p"}, "--nproc_per_node must be a whole number from 1"},
      {{"-m", "--no_python", "p"}, "-m (--module) and --no_python exclude each other"},
      {{"-m", "--run_path", "p"}, "-m (--module) and --run_path exclude each other"},
      {{"--bind_core_list", "0-3", "p"}, "--bind_cores_to_rank"},
      {{"--bind_cores_to_rank", "--bind_core_list", "3-1", "p"}, "ends before it begins"},
      {{"--bind_cores_to_rank", "--bind_core_list", "0,,1", "p"}, "each core of a list"},
      {{"--bind_cores_to_rank", "--numa_binding", "node", "p"}, "exclude each other"},
      {{"--numa_binding", "core", "p"},
       "--numa_binding must be one of node, socket, exclusive, core-complex, not 'core'"},
      {{"--standalone", "--nnodes", "2", "p"}, "--standalone is a job of one node"},
      {{"--standalone", "--launcher", "ssh", "p"}, "--standalone is a job of this machine"},
      {{"--standalone", "-H", "hf", "p"}, "-H (--hostfile) and --standalone exclude each other"},
      {{"--no_ssh", "--launcher", "local", "p"}, "--no_ssh and --launcher exclude each other"},
      {{"--no_ssh", "--ssh_port", "22", "p"}, "--no_ssh and --ssh_port exclude each other"},
      {{"--node_rank", "1", "-H", "hf", "p"}, "add --no_ssh for that"},
      {{"--node_rank", "1", "p"}, "there is one node, which is 0; give their number"},
      {{"--node_rank", "2", "--nnodes", "2", "--master_addr", "h", "p"}, "is 1; nodes are counted"},
      {{"--node_rank", "0", "--nnodes", "2", "p"},
       "the address of the rendezvous is missing: add --master_addr HOST"},
      {{"--nnodes", "2", "--rdzv_endpoint", "h:0", "p"}, "port 0 is any port"},
      {{"--nnodes", "2", "--rdzv_endpoint", "h:1", "--rdzv_token_file", "f", "--insecure_rdzv",
        "p"},
       "--rdzv_token_file and --insecure_rdzv exclude each other"},
      {{"--num_nodes", "2", "--insecure_rdzv", "p"}, "--insecure_rdzv is for a job without SSH"},
      {{"--nnodes", "2", "--rdzv_endpoint", "h:1", "--ssh_command", "ssh", "p"},
       "--ssh_command is for a job that is started over SSH, and --rdzv_endpoint"},
      {{"--nnodes", "2", "--rdzv_endpoint", "h:1", "--detach", "p"}, "--detach is for a job"},
      {{"--rdzv_endpoint", "a b:1", "p"}, "--rdzv_endpoint must be HOST:PORT"},
      {{"--rdzv_endpoint", "fe80::1", "p"}, "such as node1:29400 or [fe80::1]:0"},
      {{"--rdzv_endpoint", ":29400", "p"}, "--rdzv_endpoint must be HOST:PORT"},
      {{"--rdzv_endpoint", "h:65536", "p"}, "--rdzv_endpoint: the port must be a whole number"},
      {{"--rdzv_endpoint", "h:", "p"}, "--rdzv_endpoint: the port must be a whole number"},
      {{"--local_addr", "10.0.0.1", "--nnodes", "2", "p"}, "--local_addr is for a job without SSH"},
      {{"--tee", "0:4", "p"}, "--tee must be 0 (no stream), 1 (stdout), 2 (stderr) or 3 (both)"},
      {{"-t", "all", "p"}, "-t (--tee) all is not supported: as torchrun's, it names streams"},
      {{"-t", "both", "p"}, "-t (--tee) must be 0 (no stream)"},
      {{"-r", "x:1", "p"}, "-r (--redirects): each local rank must be a whole number"},
      {{"--local_ranks_filter", "0,x", "p"}, "--local_ranks_filter: each rank must be"},
      {{"--detach", "--json", "p"}, "dslaunch ps --all --json"},
      {{"-q=1", "p"}, "-q (--quiet) takes no value"},
      {{"--num_gpus", "2", "doctor"}, "options of 'doctor' come after it"},
      {{"train", "--time_limit", "0"},
       "--time_limit must be seconds, 0.001 to 1000000000, or a time such as 90s, 10m, 2h or 1d, "
       "not "
       "'0'"},
      {{"train", "--eval_only", "--plan_memory"}, "exclude each other"},
      {{"train", "--plan_pipeline", "--plan_memory"}, "exclude each other"},
      {{"train", "--pipeline_svg", "p.svg"}, "--plan_pipeline draws its picture"},
      {{"train", "--eval_only", "--steps", "3"}, "--eval_only trains nothing; leave --steps out"},
      {{"train", "--eval_only", "--time_limit", "3"}, "leave --time_limit out"},
      {{"train", "--deterministic=1"}, "--deterministic takes no value"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(testing::PrintToString(c.arguments));
    const Result<LaunchOptions> options = Parse(c.arguments);
    ASSERT_FALSE(options.ok());
    EXPECT_EQ(options.error().code, ExitCode::kUsage);
    EXPECT_THAT(options.error().message, HasSubstr(c.message));
    EXPECT_THAT(options.error().message, HasSubstr("ee dslaunch "));
    EXPECT_EQ(options.error().message.find('\n'), std::string::npos);
  }
}

TEST(ParseOptions, AcceptsUniquePrefixesLikeArgparse) {
  EXPECT_THAT(Good({"--launcher_arg", "-v", "p"}).ssh_command, ElementsAre("ssh", "-v"));
  EXPECT_EQ(Good({"--nproc=2", "p"}).num_gpus, 2);
  EXPECT_EQ(Good({"--num-acc", "3", "p"}).num_gpus, 3);
  EXPECT_EQ(Good({"--host", "hf", "p"}).hostfile, "hf");
  // An exact name precedes an abbreviation.
  EXPECT_EQ(Good({"--launcher", "local", "p"}).launcher, Launcher::kLocal);
}

TEST(ParseOptions, AcceptsCombinedShortFlags) {
  const LaunchOptions options = Good({"-qmi", "w0@w1:0,2", "pkg.mod", "-q"});
  EXPECT_EQ(options.log_level, LogLevel::kError);
  EXPECT_EQ(options.form, ProgramForm::kModule);
  EXPECT_EQ(options.include, "w0@w1:0,2");
  EXPECT_THAT(options.program, ElementsAre("pkg.mod", "-q"));
}

TEST(ParseOptions, ReadsPerNodeStyle) {
  const LaunchOptions fixed = Good({"--nnodes=2", "--nproc-per-node=4", "--node-rank=1",
                                    "--master-addr=node0", "--master-port=29511", "train.py"});
  ASSERT_TRUE(fixed.per_node);
  EXPECT_EQ(fixed.per_node->node_rank, 1);
  EXPECT_EQ(fixed.per_node->host, "node0");
  EXPECT_EQ(fixed.per_node->port, 29511);
  EXPECT_EQ(fixed.per_node->id, "none");
  EXPECT_EQ(fixed.num_nodes, 2);
  EXPECT_EQ(fixed.num_gpus, 4);
  EXPECT_FALSE(fixed.launcher);

  const LaunchOptions c10d =
      Good({"--nnodes", "1:4", "--nproc_per_node", "gpu", "--rdzv_backend", "c10d", "--rdzv_id",
            "job7", "--rdzv_endpoint", "[fe80::1]", "--rdzv_conf",
            "join_timeout=90,is_host=True, keep_alive_interval=2,read_timeout=60", "--local-addr",
            "10.0.0.2", "--max-restarts", "3", "train.py"});
  ASSERT_TRUE(c10d.per_node);
  EXPECT_FALSE(c10d.per_node->node_rank);
  EXPECT_EQ(c10d.per_node->host, "fe80::1");
  EXPECT_EQ(c10d.per_node->port, 29400);
  EXPECT_EQ(c10d.per_node->id, "job7");
  EXPECT_EQ(c10d.per_node->is_host, true);
  EXPECT_EQ(c10d.per_node->join_timeout_ms, 90'000);
  EXPECT_EQ(c10d.local_addr, "10.0.0.2");
  EXPECT_EQ(c10d.min_nodes, 1);
  EXPECT_EQ(c10d.max_nodes, 4);
  EXPECT_EQ(c10d.slots_from, SlotsFrom::kGpu);
  EXPECT_EQ(c10d.heartbeat_ms, 2000);
  EXPECT_EQ(c10d.suspect_ms, 4000);
  EXPECT_EQ(c10d.dead_ms, 6000);

  const LaunchOptions deepspeed =
      Good({"--hostfile", "hf", "--no_ssh", "--node_rank=0", "--master_addr", "w0", "p.py"});
  ASSERT_TRUE(deepspeed.per_node);
  EXPECT_EQ(deepspeed.per_node->node_rank, 0);
  EXPECT_EQ(deepspeed.per_node->port, 29500);
  EXPECT_EQ(deepspeed.hostfile, "hf");
  EXPECT_FALSE(deepspeed.num_nodes || deepspeed.num_gpus);
  // The hostfile supplies the rest.
  EXPECT_TRUE(Good({"--no_ssh", "--node_rank", "1", "p"}).per_node);
}

TEST(ParseOptions, OneNodeInPerNodeStyleIsThisMachine) {
  const LaunchOptions alone = Good({"--nnodes=1", "--node_rank=0", "--nproc_per_node=8",
                                    "--master_addr", "localhost", "--master_port=6000", "p"});
  EXPECT_FALSE(alone.per_node);
  EXPECT_EQ(alone.launcher, Launcher::kLocal);
  EXPECT_EQ(alone.num_nodes, 1);
  EXPECT_EQ(alone.num_gpus, 8);
  EXPECT_EQ(alone.master_addr, "localhost");
  EXPECT_EQ(alone.master_port, 6000);
  EXPECT_TRUE(alone.notices.empty());
  const LaunchOptions any_port = Good({"--rdzv_backend=c10d", "--rdzv-endpoint=localhost:0", "p"});
  EXPECT_FALSE(any_port.per_node);
  EXPECT_EQ(any_port.master_port, 0);
  EXPECT_EQ(any_port.num_gpus, 1);
  EXPECT_THAT(any_port.notices,
              ElementsAre(HasSubstr("1 rank per node, as torchrun with --rdzv_endpoint")));
  const LaunchOptions standalone =
      Good({"--standalone", "--nnodes=1:1", "--nproc_per_node=2", "--rdzv_id", "x", "p"});
  EXPECT_EQ(standalone.launcher, Launcher::kLocal);
  EXPECT_EQ(standalone.num_nodes, 1);
  EXPECT_FALSE(standalone.min_nodes);
  EXPECT_THAT(standalone.notices, ElementsAre("--rdzv_id is not used: --standalone is one node"));
  EXPECT_FALSE(standalone.run_id);
}

TEST(ParseOptions, RunIdIsRdzvIdForAnyNumberOfNodes) {
  EXPECT_EQ(Good({"--rdzv_id", "7", "--nproc_per_node", "2", "p"}).run_id, "7");
  EXPECT_EQ(Good({"--nnodes=1", "--rdzv-id", "none", "p"}).run_id, "none");
  EXPECT_EQ(Good({"--nnodes=2", "--node_rank=0", "--master_addr=h", "--rdzv_id=7", "p"}).run_id,
            "7");
  EXPECT_FALSE(Good({"--nnodes=1", "p"}).run_id);
}

TEST(ParseOptions, StandaloneIgnoresMasterAddrAndReportsIt) {
  const char* const environment[] = {"PET_MASTER_ADDR=10.9.9.9", nullptr};
  const char* const argv[] = {"dslaunch", "--standalone", "-n", "1", "p"};
  const auto from_variable = ParseOptions(std::ssize(argv), argv, {environment, ""});
  ASSERT_TRUE(from_variable.ok()) << from_variable.error().message;
  for (const LaunchOptions& options :
       {*from_variable, Good({"--standalone", "--master_addr=10.9.9.9", "-n", "1", "p"})}) {
    EXPECT_EQ(options.master_addr, std::nullopt);
    EXPECT_THAT(options.notices,
                ElementsAre("--master_addr is not used: --standalone is one node"));
  }
  EXPECT_THAT(Good({"--standalone", "--local_addr", "10.9.9.9", "-n", "1", "p"}).notices,
              ElementsAre("--local_addr is not used: --standalone is one node"));
}

TEST(ParseOptions, ExpandsTildeInPathsFromEveryLayer) {
  const std::string home = std::getenv("HOME");
  EXPECT_EQ(Good({"--log_dir=~/x", "p"}).log_dir, home + "/x");
  EXPECT_EQ(Good({"--log_dir=~", "p"}).log_dir, home);
  EXPECT_EQ(Good({"--output_filename=~/x", "p"}).log_dir, home + "/x");
  EXPECT_EQ(Good({"--hostfile=~/hosts", "p"}).hostfile, home + "/hosts");
  EXPECT_EQ(Good({"--log_dir=~root/x", "p"}).log_dir, "/root/x");
  EXPECT_EQ(Good({"--log_dir=~no-such-user/x", "p"}).log_dir, "~no-such-user/x");
  EXPECT_EQ(Good({"--log_dir=a/~/x", "p"}).log_dir, "a/~/x");
  EXPECT_THAT(Good({"--copy=~/a", "--copy=b", "p"}).copy_files, ElementsAre(home + "/a", "b"));
  EXPECT_EQ(Good({"train", "--checkpoint_dir=~/ck"}).train.checkpoint_dir, home + "/ck");
  EXPECT_THAT(Good({"--env", "A=~/x", "p"}).env, ElementsAre("A=~/x")) << "not a path";
  const char* const environment[] = {"PET_LOG_DIR=~/x", nullptr};
  const char* const argv[] = {"dslaunch", "p"};
  EXPECT_EQ(ParseOptions(std::ssize(argv), argv, {environment, ""})->log_dir, home + "/x");
}

TEST(ParseOptions, ShowsSameRanksAsTorchrun) {
  const auto shows = [](const std::vector<std::string>& arguments) {
    std::vector<std::string> all = arguments;
    all.push_back("p");
    return Good(all);
  };
  EXPECT_FALSE(shows({"-t", "0"}).shown_ranks.all);
  EXPECT_TRUE(shows({"-t", "3"}).shown_ranks.all);
  EXPECT_TRUE(shows({"--tee", "0:3,1:1"}).shown_ranks.all);
  EXPECT_TRUE(shows({"--local-ranks-filter", "1,0"}).shown_ranks.all);
  EXPECT_THAT(*shows({"--local-ranks-filter", "1,0"}).local_ranks_shown, ElementsAre(0, 1));
  EXPECT_THAT(shows({"--local-ranks-filter", "0", "--show", "2,5"}).shown_ranks.ranks,
              ElementsAre(2, 5));
  for (const char* streams : {"1", "2", "3"}) {
    const LaunchOptions options = shows({"--tee", streams});
    EXPECT_TRUE(options.shown_ranks.all);
    EXPECT_TRUE(options.notices.empty());
  }
  EXPECT_THAT(shows({"--tee", "0"}).shown_ranks.ranks,
              ElementsAre(0));  // 0 is the default
  // The last occurrence takes precedence.
  EXPECT_TRUE(shows({"--tee", "0", "-t", "3"}).shown_ranks.all);
  EXPECT_THAT(shows({"--tee", "3", "--show", "2"}).shown_ranks.ranks, ElementsAre(2));

  const LaunchOptions nothing = shows({"-r", "3"});
  EXPECT_TRUE(!nothing.shown_ranks.all && nothing.shown_ranks.ranks.empty());
  const LaunchOptions errors = shows({"--redirects", "1"});
  EXPECT_TRUE(errors.shown_ranks.all);
  EXPECT_EQ(errors.log_only.Of(7), RankStreams::kStdout);
  const LaunchOptions mixed = shows({"-r", "0:3,1:1", "-t", "0:1"});
  EXPECT_TRUE(mixed.shown_ranks.all);
  EXPECT_EQ(mixed.log_only.Of(0), RankStreams::kStderr);
  EXPECT_EQ(mixed.log_only.Of(1), RankStreams::kStdout);
  EXPECT_EQ(mixed.log_only.Of(2), 0u);
}

TEST(ParseOptions, TorchrunVariablesAreDefaults) {
  const auto parse = [](const std::vector<const char*>& variables,
                        const std::vector<std::string>& arguments) {
    std::vector<const char*> argv = {"dslaunch"};
    for (const std::string& argument : arguments) argv.push_back(argument.c_str());
    std::vector<const char*> environment = variables;
    environment.push_back(nullptr);
    return ParseOptions(static_cast<int>(argv.size()), argv.data(), {environment.data(), ""});
  };
  const auto pod =
      parse({"PET_NNODES=2", "PET_NPROC_PER_NODE=4", "PET_NODE_RANK=1", "PET_MASTER_ADDR=pod-0",
             "PET_MASTER_PORT=29500", "PET_RDZV_CONF=", "PET_MODULE=1", "PET_NO_PYTHON=0",
             "PET_HOSTFILE=/no", "HOME=/"},
            {"pkg.mod"});
  ASSERT_TRUE(pod.ok()) << pod.error().message;
  ASSERT_TRUE(pod->per_node);
  EXPECT_EQ(pod->per_node->node_rank, 1);
  EXPECT_EQ(pod->per_node->host, "pod-0");
  EXPECT_EQ(pod->num_gpus, 4);
  EXPECT_EQ(pod->form, ProgramForm::kModule);
  EXPECT_FALSE(pod->hostfile);
  // The command line takes precedence over variables, even through another option of the same or
  // the opposite meaning.
  const auto typed = parse({"PET_NNODES=2", "PET_NPROC_PER_NODE=4", "PET_NODE_RANK=1"},
                           {"-H", "hf", "--num_nodes", "3", "--num_gpus=2", "p"});
  ASSERT_TRUE(typed.ok()) << typed.error().message;
  EXPECT_FALSE(typed->per_node);
  EXPECT_EQ(typed->num_nodes, 3);
  EXPECT_EQ(typed->num_gpus, 2);
  EXPECT_TRUE(parse({"PET_TEE=3"}, {"p"})->shown_ranks.all);
  EXPECT_THAT(parse({"PET_TEE=3"}, {"--show", "2", "p"})->shown_ranks.ranks, ElementsAre(2));
  EXPECT_THAT(parse({"PET_TEE=all"}, {"p"}).error().message, HasSubstr("PET_TEE all is not"));
  EXPECT_THAT(parse({"PET_NNODES=two"}, {"p"}).error().message,
              HasSubstr("PET_NNODES must be a whole number from 1"));
  EXPECT_THAT(parse({"PET_MASTER_PORT="}, {"p"}).error().message,
              HasSubstr("PET_MASTER_PORT must be a whole number"));
  EXPECT_THAT(parse({"PET_STANDALONE=yes"}, {"p"}).error().message,
              HasSubstr("PET_STANDALONE must be 1 or 0, not 'yes'"));
}

class LaunchFileOptions : public testing::Test {
 protected:
  Result<LaunchOptions> ParseHere(const std::vector<std::string>& arguments,
                                  const std::vector<const char*>& variables = {}) {
    std::vector<const char*> argv = {"dslaunch"};
    for (const std::string& argument : arguments) argv.push_back(argument.c_str());
    std::vector<const char*> environment = variables;
    environment.push_back(nullptr);
    return ParseOptions(static_cast<int>(argv.size()), argv.data(),
                        {environment.data(), folder_.path()});
  }

  TempDir folder_;
};

TEST_F(LaunchFileOptions, YieldToCommandLineAndOverrideVariables) {
  folder_.Write("dslaunch.yaml",
                "launch:\n  num_gpus: 8\n  max-restarts: 2\n  detach: true\n  module: false\n"
                "  env: {OMP_NUM_THREADS: 1, WANDB_NOTES: two words}\n");
  const auto options = ParseHere({"--num_gpus", "2", "--env", "OMP_NUM_THREADS=3", "p"},
                                 {"PET_NPROC_PER_NODE=4", "PET_MAX_RESTARTS=5", "PET_MODULE=1"});
  ASSERT_TRUE(options.ok()) << options.error().message;
  EXPECT_EQ(options->num_gpus, 2);
  EXPECT_EQ(options->max_restarts, 2);
  EXPECT_TRUE(options->detach);
  EXPECT_EQ(options->form, ProgramForm::kAuto);
  EXPECT_THAT(options->env,
              ElementsAre("OMP_NUM_THREADS=1", "WANDB_NOTES=two words", "OMP_NUM_THREADS=3"));
  EXPECT_THAT(options->notices, ElementsAre(HasSubstr("dslaunch.yaml gives ")));
  const auto filtered = ParseHere({"--include", "w0", "p"});
  // --include excludes num_gpus in the file.
  ASSERT_TRUE(filtered.ok()) << filtered.error().message;
  EXPECT_FALSE(filtered->num_gpus);
}

TEST_F(LaunchFileOptions, ExpandTilde) {
  folder_.Write("dslaunch.yaml", "launch:\n  log_dir: ~/x\n");
  EXPECT_EQ(ParseHere({"p"})->log_dir, std::string(std::getenv("HOME")) + "/x");
}

TEST_F(LaunchFileOptions, ApplyBesideRecipe) {
  folder_.Write("run.yaml", "launch: {num_gpus: 2, show: '0,1'}\nmodel: {type: mlp}\n");
  const std::string path = folder_ / "run.yaml";
  const auto named = ParseHere({"train", "run.yaml"});
  ASSERT_TRUE(named.ok()) << named.error().message;
  EXPECT_EQ(named->num_gpus, 2);
  EXPECT_EQ(named->train.recipe, "run.yaml");
  const auto alone = ParseHere({"--run_file", path});
  ASSERT_TRUE(alone.ok()) << alone.error().message;
  EXPECT_EQ(alone->mode, Mode::kTrain);
  EXPECT_EQ(alone->train.recipe, path);
  EXPECT_THAT(alone->shown_ranks.ranks, ElementsAre(0, 1));
  EXPECT_TRUE(alone->notices.empty());
  const auto program = ParseHere({"--run_file", path, "./prog"});
  ASSERT_TRUE(program.ok());
  EXPECT_EQ(program->mode, Mode::kProgram);
  folder_.Write("dslaunch.yaml", "launch: {num_gpus: 3}\n");
  const auto built_in = ParseHere({"train"});
  ASSERT_TRUE(built_in.ok());
  EXPECT_EQ(built_in->num_gpus, 3);
  EXPECT_EQ(built_in->train.recipe, "fashion_mnist");
}

TEST_F(LaunchFileOptions, RunCodeFromNamedFileOnly) {
  for (const std::string entry :
       {"ssh_command: ./evil", "launcher_args: -oProxyCommand=./evil", "venv_script: ./evil"}) {
    SCOPED_TRACE(entry);
    const std::string path = folder_.Write("dslaunch.yaml", "launch:\n  " + entry + "\n");
    for (const char* program : {"p", "train"}) {
      const auto found = ParseHere({program});
      ASSERT_FALSE(found.ok());
      EXPECT_EQ(found.error().code, ExitCode::kBadInput);
      EXPECT_THAT(found.error().message, HasSubstr(path + ":2:3: " + entry.substr(0, 3)));
      EXPECT_THAT(found.error().message, HasSubstr(" runs code, so it is not taken from a file "));
      EXPECT_THAT(found.error().message, HasSubstr("--run_file " + path));
    }
    const auto named = ParseHere({"--run_file", path, "p"});
    EXPECT_TRUE(named.ok()) << named.error().message;
    const auto recipe = ParseHere({"train", "./dslaunch.yaml"});
    EXPECT_TRUE(recipe.ok()) << recipe.error().message;
  }
}

// Variables from a file that the user did not name are limited to safe ones: programs run code
// named by PERLLIB and COMPILER_PATH, and the effect of LR is unknown.
TEST_F(LaunchFileOptions, SetOnlySafeVariablesFromUnnamedFile) {
  for (const auto& [entry, name] : {std::pair("env: {PERLLIB: ./evil}", "PERLLIB"),
                                    {"env: {COMPILER_PATH: .}", "COMPILER_PATH"},
                                    {"env: {LD_PRELOAD: ./evil.so}", "LD_PRELOAD"},
                                    {"env: [TZ=UTC, PYTHONPATH=.]", "PYTHONPATH"},
                                    {"env: {LR: 0.1}", "LR"}}) {
    SCOPED_TRACE(entry);
    const std::string path =
        folder_.Write("dslaunch.yaml", std::string("launch:\n  ") + entry + "\n");
    const auto found = ParseHere({"p"});
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.error().code, ExitCode::kBadInput);
    EXPECT_EQ(found.error().message,
              path + ":2:3: env: " + name +
                  " is not among the variables that dslaunch knows to be harmless, so it is not "
                  "taken from a file that the command line does not name; write '" +
                  name +
                  "' without a value to take it from this environment, give --env there, or "
                  "--run_file " +
                  path);
    EXPECT_TRUE(ParseHere({"--run_file", path, "p"}).ok());
  }
  folder_.Write("dslaunch.yaml", "launch: {env: [LR, NCCL_DEBUG=INFO, CUDA_DEVICE_ORDER=x]}\n");
  EXPECT_THAT(ParseHere({"p"})->env, ElementsAre("LR", "NCCL_DEBUG=INFO", "CUDA_DEVICE_ORDER=x"));
}

TEST_F(LaunchFileOptions, TrustOnlyHostfileNamedByUser) {
  const std::string path = folder_.Write("dslaunch.yaml", "launch: {hostfile: hosts}\n");
  EXPECT_FALSE(ParseHere({"p"})->hostfile_is_trusted);
  EXPECT_TRUE(ParseHere({"--hostfile", "hosts", "p"})->hostfile_is_trusted);
  EXPECT_TRUE(ParseHere({"--run_file", path, "p"})->hostfile_is_trusted);
}

TEST_F(LaunchFileOptions, SetJoinOptionsFromNamedFileOnly) {
  for (const std::string entry : {"insecure_rdzv: true", "rdzv_token_file: ./token"}) {
    SCOPED_TRACE(entry);
    const std::string path = folder_.Write("dslaunch.yaml", "launch:\n  " + entry + "\n");
    const std::vector<std::string> per_node = {"--no_ssh", "--node_rank", "0", "--master_addr",
                                               "node0"};
    std::vector<std::string> words = per_node;
    words.push_back("p");
    const auto found = ParseHere(words);
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.error().code, ExitCode::kBadInput);
    EXPECT_THAT(found.error().message,
                HasSubstr(path + ":2:3: " + entry.substr(0, entry.find(':')) +
                          " decides who may take part, so it is not taken from a file "));
    words = per_node;
    words.insert(words.begin(), {"--run_file", path});
    words.push_back("p");
    const auto named = ParseHere(words);
    EXPECT_TRUE(named.ok()) << named.error().message;
  }
}

TEST_F(LaunchFileOptions, AcceptVariableNamesFromUnnamedFile) {
  folder_.Write("dslaunch.yaml", "launch: {env: [PATH, HF_TOKEN]}\n");
  EXPECT_THAT(ParseHere({"p"})->env, ElementsAre("PATH", "HF_TOKEN"));
}

TEST_F(LaunchFileOptions, UseWritableFileOnlyIfNamed) {
  const std::string path = folder_.Write("dslaunch.yaml", "launch: {num_gpus: 3}\n");
  std::filesystem::permissions(path, std::filesystem::perms(0666));
  const auto found = ParseHere({"p"});
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ExitCode::kBadInput);
  EXPECT_THAT(found.error().message, HasSubstr(path + " may be changed by others (mode 0666)"));
  EXPECT_THAT(found.error().message, HasSubstr("name it: --run_file " + path));
  EXPECT_TRUE(ParseHere({"--run_file", path, "p"}).ok());
}

TEST_F(LaunchFileOptions, ErrorsNameFilePositionAndKey) {
  const std::string path = folder_ / "dslaunch.yaml";
  const struct {
    std::string text;
    std::string message;
  } cases[] = {
      {"launch:\n  num_gpu: 2\n", ":2:3: unknown option 'num_gpu', did you mean 'num_gpus'?"},
      {"launch:\n  num_gpus: many\n",
       ":2:3: num_gpus must be a whole number from 1 to 4096, not 'many'"},
      {"launch:\n  num_gpus: [1, 2]\n", ":2:3: num_gpus is one value"},
      {"launch:\n  num_gpus:\n", ":2:3: num_gpus has no value"},
      {"launch:\n  detach: 1\n", ":2:3: detach is true or false, not '1'"},
      {"launch:\n  num_gpus: 1\n  num-accelerators: 2\n",
       ": num_gpus is given twice, in two spellings"},
      {"launch:\n  env: X\n", ":2:3: env is a list of NAME=VALUE or NAME"},
      {"launch:\n  env: [a b]\n", ":2:3: env must be NAME=VALUE, or NAME"},
      {"launch:\n  help: true\n", ":2:3: help belongs on the command line"},
      {"launch:\n  include: a\n  exclude: b\n", ":2:3: include and "},
      {"launch:\n  tee: none\n", ":2:3: tee none is not supported: as torchrun's"},
      {"launch:\n  autotuning: run\n", ":2:3: autotuning belongs on the command line"},
      {"launch: 3\n", ":1:1: 'launch' is a map of options"},
      {"lauch: {num_gpus: 1}\n", "unknown key 'lauch', did you mean 'launch'?"},
      {"launch: [\n", "not valid YAML"},
      {"launch: &a [*a]\n", "alias to the value it is part of"},
      {"launch: {env: &a [x, x, x, x, x, x, x, x]}\nmodel: {b: &b [*a, *a, *a, *a, *a, *a, *a, "
       "*a], c: &c [*b, *b, *b, *b, *b, *b, *b, *b], d: &d [*c, *c, *c, *c, *c, *c, *c, *c], e: "
       "&e [*d, *d, *d, *d, *d, *d, *d, *d], f: &f [*e, *e, *e, *e, *e, *e, *e, *e], g: [*f, *f, "
       "*f, *f, *f, *f, *f, *f]}\n",
       "too large (aliases are expanded)"},
      {"launch: " + std::string(100, '[') + std::string(100, ']') + "\n", "levels deep"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.text);
    folder_.Write("dslaunch.yaml", c.text);
    const auto options = ParseHere({"p"});
    ASSERT_FALSE(options.ok());
    EXPECT_EQ(options.error().code, ExitCode::kBadInput) << options.error().message;
    EXPECT_THAT(options.error().message, HasSubstr(path));
    EXPECT_THAT(options.error().message, HasSubstr(c.message));
  }
  const auto missing = ParseHere({"--run_file", "/no/such.yaml", "p"});
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, HasSubstr("/no/such.yaml"));
}

TEST(ParseOptions, RejectsEmptyCommandLine) { EXPECT_FALSE(ParseOptions(0, nullptr).ok()); }

TEST(ParseOptions, HelpFitsTerminalAndNamesKnownOptions) {
  const LaunchOptions help = Good({"--num_gpus", "2", "--help"});
  EXPECT_EQ(help.mode, Mode::kHelp);
  EXPECT_LE(std::count(help.text.begin(), help.text.end(), '\n'), 65);
  const LaunchOptions all = Good({"--help_all"});
  EXPECT_THAT(all.text, HasSubstr("--rdzv_conf"));
  // The command of each help page must know every option that the page names.
  const std::regex option("--[a-z_]+");
  const std::vector<std::vector<std::string>> words = {
      {"--help"}, {"--help_all"}, {"--help_launchers"}, {"train", "--help"}, {"predict", "--help"}};
  for (const std::vector<std::string>& word : words) {
    const LaunchOptions shown = Good(word);
    EXPECT_EQ(shown.mode, Mode::kHelp);
    std::istringstream text(shown.text);
    for (std::string line; std::getline(text, line);) EXPECT_LE(line.size(), 92u) << line;
    for (std::sregex_iterator i(shown.text.begin(), shown.text.end(), option), end; i != end; ++i) {
      const auto in_launch = Parse({i->str(), "--help"});
      const auto after_word = Parse({word.front(), i->str(), "--help"});
      for (const auto* parsed : {&in_launch, &after_word}) {
        if (parsed->ok()) continue;
        EXPECT_THAT(parsed->error().message,
                    AnyOf(HasSubstr("needs a value"), HasSubstr("belongs")))
            << i->str();
      }
    }
  }
  EXPECT_THAT(Good({"train", "--help"}).text, HasSubstr("--metrics_jsonl"));
  EXPECT_THAT(Good({"predict", "--help"}).text, HasSubstr("--prompt"));
}

TEST(ParseOptions, RejectsLaunchOptionsAfterTrain) {
  for (const OptionSpec& spec : LaunchOptionTable()) {
    for (const std::string& name : NamesOf(spec)) {
      if (FindOption(TrainOptionTable(), name).spec != nullptr) continue;
      const auto options = Parse({"train", name});
      ASSERT_FALSE(options.ok()) << name;
      EXPECT_THAT(options.error().message,
                  HasSubstr("option '" + name + "' belongs before 'train'"));
    }
  }
}

TEST(ParseOptions, ReadsDurations) {
  for (const auto& [text, ms] : {std::pair("90", 90'000),
                                 {"1.5", 1'500},
                                 {"90s", 90'000},
                                 {"10m", 600'000},
                                 {"10min", 600'000},
                                 {"2h", 7'200'000},
                                 {"1h30m", 5'400'000},
                                 {"1d", 86'400'000}}) {
    EXPECT_EQ(Good({"--grace", text, "p"}).grace_ms, ms) << text;
  }
  EXPECT_EQ(Good({"train", "--time_limit", "2h"}).train.time_limit_s, 7200);
  for (const char* text : {"", "m", "10x", "1h30", "-1s", "nan", "1 h", "2d"})
    EXPECT_FALSE(Parse({"--grace", text, "p"}).ok()) << text;
}

TEST(ParseOptions, ReportsTimeLimitWithUnit) {
  EXPECT_THAT(Good({"--time_limit", "2", "p"}).notices,
              ElementsAre("--time_limit: the job is ended 2 s after the start of its ranks"));
  EXPECT_THAT(
      Good({"--time_limit", "90m", "train"}).notices,
      testing::Contains("--time_limit: the training saves and ends 1 h 30 min after its start"));
}

TEST(ParseOptions, HelpListsCommonOptions) {
  const std::string help = Good({"--help"}).text;
  for (const char* name : {"--tee", "--copy", "--stdin", "--venv_script", "--help_launchers"})
    EXPECT_THAT(help, HasSubstr(name));
}

TEST(ParseOptions, HelpLaunchersListsOtherLaunchersOptions) {
  const std::string all = Good({"--help_all"}).text;
  const std::string launchers = Good({"--help_launchers"}).text;
  for (const char* name : {"--slots_per_host", "--cycle_time_ms", "--monitor_interval",
                           "--autotuning", "--enable_each_rank_log"}) {
    EXPECT_THAT(launchers, HasSubstr(name));
    EXPECT_THAT(all, Not(HasSubstr(name)));
  }
  EXPECT_THAT(launchers, Not(HasSubstr("--heartbeat_s")));
}

TEST(ParseOptions, JobCommandsPrecedeProgramsOfSameName) {
  const LaunchOptions logs = Good({"logs", "last", "-f"});
  EXPECT_EQ(logs.mode, Mode::kJobCommand);
  EXPECT_THAT(logs.program, ElementsAre("logs", "last", "-f"));
  EXPECT_EQ(Good({"--detach", "./ps"}).mode, Mode::kProgram);
  EXPECT_TRUE(Good({"--detach", "./ps"}).detach);
  const auto mixed = Parse({"--num_gpus", "2", "ps"});
  ASSERT_FALSE(mixed.ok());
  EXPECT_THAT(mixed.error().message, HasSubstr("./ps"));
}

TEST(ParseOptions, ReadsVersionOptionAndCommand) {
  const LaunchOptions options = Good({"--version"});
  EXPECT_EQ(options.mode, Mode::kVersion);
  EXPECT_FALSE(options.json);
  EXPECT_TRUE(Good({"--version", "--json"}).json);
  EXPECT_TRUE(Good({"version", "--json"}).json);
}

}  // namespace
}  // namespace dslaunch::options_test
