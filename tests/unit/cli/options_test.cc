#include "cli/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <sstream>

namespace dslaunch {
namespace {

using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
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

TEST(ParseOptions, DefaultsAreTheDocumentedOnes) {
  const LaunchOptions options = Good({"./prog"});
  EXPECT_EQ(options.mode, Mode::kProgram);
  EXPECT_THAT(options.program, ElementsAre("./prog"));
  EXPECT_FALSE(options.num_nodes || options.num_gpus || options.hostfile || options.launcher);
  EXPECT_EQ(options.device, DeviceChoice::kAuto);
  EXPECT_EQ(options.master_port, 0);
  EXPECT_FALSE(options.tee.all);
  EXPECT_THAT(options.tee.ranks, ElementsAre(0));
  EXPECT_EQ(options.grace_ms, 10'000);
  EXPECT_EQ(options.connect_timeout_ms, 20'000);
}

TEST(ParseOptions, EveryOptionInEverySpelling) {
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
       "--tee",
       "3,0,3",
       "--log_dir",
       "/l",
       "--grace",
       "0.5",
       "--connect_timeout",
       "7",
       "p"},
      {"--num-nodes=2", "--num-accelerators=4", "-H", "hf", "--launcher=SSH", "--device=Cuda",
       "--master-port=29500", "--tee=0,3", "--log-dir=/l", "--grace=0.5", "--connect-timeout=7",
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
       "--tee",
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
    EXPECT_THAT(options.tee.ranks, ElementsAre(0, 3));
    EXPECT_EQ(options.log_dir, "/l");
    EXPECT_EQ(options.grace_ms, 500);
    EXPECT_EQ(options.connect_timeout_ms, 7000);
    EXPECT_THAT(options.program, ElementsAre("p"));
  }
}

TEST(ParseOptions, WhatHappensOnFailuresIsOptional) {
  const LaunchOptions none = Good({"p"});
  EXPECT_FALSE(none.max_restarts || none.min_nodes || none.max_nodes || none.json);
  EXPECT_EQ(none.restart_delay_ms, 1000);
  EXPECT_EQ(none.on_join, OnJoin::kNextRestart);
  EXPECT_EQ(none.on_hang, OnHang::kReport);
  EXPECT_EQ(none.hang_ms, 60'000);
  EXPECT_EQ(none.heartbeat_ms, 1000);
  EXPECT_EQ(none.suspect_ms, 3000);
  EXPECT_EQ(none.dead_ms, 6000);
  EXPECT_EQ(none.lease_ms, 60'000);
  EXPECT_EQ(none.log_max_mb, 0);
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
    EXPECT_EQ(options.heartbeat_ms, 200);
    EXPECT_EQ(options.suspect_ms, 600);
    EXPECT_EQ(options.dead_ms, 2000);
    EXPECT_EQ(options.lease_ms, 30'000);
    EXPECT_EQ(options.log_max_mb, 64);
    EXPECT_TRUE(options.json);
  }
}

TEST(ParseOptions, NumbersOfNodesInEverySpelling) {
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

TEST(ParseOptions, TeeWords) {
  EXPECT_TRUE(Good({"--tee", "all", "p"}).tee.all);
  const Tee none = Good({"--tee", "none", "p"}).tee;
  EXPECT_FALSE(none.all);
  EXPECT_TRUE(none.ranks.empty());
}

TEST(ParseOptions, TheLastOfTheSameOptionCounts) {
  EXPECT_EQ(Good({"--num_nodes", "2", "--num-nodes=3", "p"}).num_nodes, 3);
}

TEST(ParseOptions, WhatFollowsTheProgramIsItsOwn) {
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

TEST(ParseOptions, TrainOptions) {
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
  const TrainOptions saving =
      Good({"train", "--checkpoint-dir", "c", "--save_every=5", "--resume", "none"}).train;
  EXPECT_EQ(saving.checkpoint_dir, "c");
  EXPECT_EQ(saving.save_every, 5);
  EXPECT_EQ(saving.resume, "none");
  EXPECT_FALSE(saving.async_save || saving.load_module_only);
  const TrainOptions more =
      Good({"train", "--checkpoint_dir", "c", "--async-save", "--load_module_only"}).train;
  EXPECT_TRUE(more.async_save && more.load_module_only);
  EXPECT_FALSE(Good({"train"}).train.recipe);
  EXPECT_EQ(Good({"train", "--epochs", "3", "--", "-x.yaml"}).train.recipe, "-x.yaml");
}

TEST(ParseOptions, EveryTrainOption) {
  using Task = TrainOptions::Task;
  const TrainOptions train = Good({"train", "r.yaml", "--deepspeed_config", "ds.json",
                                   "--plugin=libmine.so", "--init-weights", "w", "--export_hf",
                                   "hf", "--trace", "t", "--time_limit", "1.5", "--deterministic"})
                                 .train;
  EXPECT_EQ(train.task, Task::kTrain);
  EXPECT_EQ(train.deepspeed_config, "ds.json");
  EXPECT_EQ(train.plugin, "libmine.so");
  EXPECT_EQ(train.init_weights, "w");
  EXPECT_EQ(train.export_hf, "hf");
  EXPECT_EQ(train.trace, "t");
  EXPECT_EQ(train.time_limit_s, 1.5);
  EXPECT_TRUE(train.deterministic);
  EXPECT_EQ(Good({"train", "--eval_only", "r"}).train.task, Task::kEvaluate);
  EXPECT_EQ(Good({"train", "--plan-memory", "--steps", "3"}).train.task, Task::kPlanMemory);
  const TrainOptions drawn = Good({"train", "--plan_pipeline", "--pipeline-svg", "p.svg"}).train;
  EXPECT_EQ(drawn.task, Task::kPlanPipeline);
  EXPECT_EQ(drawn.pipeline_svg, "p.svg");
}

TEST(ParseOptions, Predict) {
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
                                      "--set",
                                      "data.block_size=8",
                                      "--data",
                                      "d",
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
  EXPECT_THAT(predict.sets, ElementsAre("data.block_size=8"));
  EXPECT_EQ(Good({"./predict", "--help"}).mode, Mode::kProgram);
}

TEST(ParseOptions, ValuesAreTakenByteForByte) {
  for (const std::string value : {"[a,b]", "-1", "a=b", "'quoted'", "{x}", "a b", "%s", "\\n"}) {
    EXPECT_EQ(Good({"train", "--data", value}).train.data, value);
    EXPECT_EQ(Good({"train", "--data=" + value, "--seed", "1"}).train.data, value);
    EXPECT_EQ(Good({"--log_dir", value, "p"}).log_dir, value);
    EXPECT_THAT(Good({"train", "--set", value, "--set", value}).train.sets,
                ElementsAre(value, value));
  }
}

TEST(ParseOptions, ErrorsNameTheArgumentAndTheWayOut) {
  const struct {
    std::vector<std::string> arguments;
    std::string message;
  } cases[] = {
      {{}, "nothing to run: give 'train' or a program"},
      {{"--num_nodes", "2"}, "nothing to run"},
      {{"--"}, "nothing to run"},
      {{""}, "the program's name is empty"},
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
      {{"--launcher", "slurm", "p"}, "--launcher must be one of local, ssh, not 'slurm'"},
      {{"--device", "tpu", "p"}, "--device must be one of auto, cuda, cpu, not 'tpu'"},
      {{"--tee", "0,", "p"}, "--tee must be all, none or ranks such as 0,3, not '0,'"},
      {{"--tee", "x", "p"}, "--tee: each rank must be a whole number"},
      {{"--tee", "", "p"}, "--tee must be all, none or ranks"},
      {{"--grace", "-1", "p"}, "--grace must be seconds, 0 to 86400, not '-1'"},
      {{"--grace", "10s", "p"}, "not '10s'"},
      {{"--grace", "nan", "p"}, "not 'nan'"},
      {{"--connect_timeout", "0", "p"}, "--connect_timeout must be seconds, 0.1 to 86400, not '0'"},
      {{"--nnodes", "3:2", "p"}, "MIN must not be more than MAX, as in '3:2'"},
      {{"--nnodes", "2:", "p"}, "--nnodes MIN:MAX: each of them must be a whole number"},
      {{"--nnodes", "1:2:3", "p"}, "not '2:3'"},
      {{"--nnodes", "0", "p"}, "--nnodes must be a whole number from 1"},
      {{"--nnodes", "2", "--num_nodes", "2", "p"}, "--nnodes excludes --num_nodes"},
      {{"--nnodes", "2:3", "--min_elastic_nodes", "2", "p"}, "--nnodes excludes"},
      {{"--num_nodes", "2", "--max_elastic_nodes", "2", "p"}, "exclude each other"},
      {{"--min_elastic_nodes", "3", "--num_nodes", "2", "p"},
       "--min_elastic_nodes 3 is more than the 2 nodes there may be"},
      {{"--heartbeat_s", "3", "p"}, "--heartbeat_s (3 s) must be less than --suspect_s (3 s)"},
      {{"--dead_s", "2.5", "p"}, "--suspect_s (3 s) must be less than --dead_s (2.5 s)"},
      {{"--restart_delay_s", "31", "p"}, "--restart_delay_s must be seconds, 0 to 30, not '31'"},
      {{"--max_restarts", "-1", "p"}, "--max_restarts must be a whole number from 0"},
      {{"--on_join", "later", "p"}, "--on_join must be one of next, now, not 'later'"},
      {{"--on_hang", "die", "p"}, "--on_hang must be one of report, kill, restart, not 'die'"},
      {{"--json=1", "p"}, "--json takes no value"},
      {{"--hostfile", "", "p"}, "--hostfile needs a value that is not empty"},
      {{"--num_node", "2", "p"}, "unknown option '--num_node', did you mean --num_nodes?"},
      {{"--num-ndoes=2", "p"}, "unknown option '--num-ndoes', did you mean --num_nodes?"},
      {{"-num_gpus", "2", "p"}, "unknown option '-num_gpus', did you mean --num_gpus?"},
      {{"--include", "w0@w1:0,2", "p"}, "option '--include' is not supported"},
      {{"--rdzv-backend=c10d", "p"}, "option '--rdzv-backend' is not supported"},
      {{"-m", "mod"}, "option '-m' is not supported"},
      {{"---", "p"}, "option '---' is not supported"},
      {{"--=1", "p"}, "option '--' is not supported"},
      {{"--help=1", "p"}, "--help takes no value"},
      {{"train", "a", "b"}, "train takes one recipe, but got 'a' and 'b'"},
      {{"train", "--steps", "0"}, "--steps must be a whole number from 1"},
      {{"train", "--seed", "-1"}, "--seed must be a whole number from 0"},
      {{"train", "--steps", "1", "--epochs", "1"}, "--steps and --epochs exclude each other"},
      {{"train", "--stpes", "1"}, "unknown option '--stpes', did you mean --steps?"},
      {{"train", "--num-gpus", "2"}, "option '--num-gpus' belongs before 'train'"},
      {{"--steps", "2", "train"}, "option '--steps' belongs after 'train'"},
      {{"train", "--set"}, "--set needs a value"},
      {{"train", "--prompt", "x"}, "option '--prompt' belongs after 'predict'"},
      {{"predict", "--steps", "1"}, "option '--steps' belongs after 'train'"},
      {{"predict", "--num_gpus", "1"}, "option '--num_gpus' belongs before 'predict'"},
      {{"--top_k", "1", "predict"}, "option '--top_k' belongs after 'predict'"},
      {{"predict", "a", "b"}, "predict takes one recipe, but got 'a' and 'b'"},
      {{"predict", "--temperature", "-1"}, "--temperature must be a number, 0 to 1e+06, not '-1'"},
      {{"train", "--time_limit", "0"}, "--time_limit must be a number, 0.001 to 1e+09, not '0'"},
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

TEST(ParseOptions, NoArgumentsAtAll) { EXPECT_FALSE(ParseOptions(0, nullptr).ok()); }

TEST(ParseOptions, HelpFitsATerminalAndNamesEveryOption) {
  const LaunchOptions help = Good({"--num_gpus", "2", "--help"});
  EXPECT_EQ(help.mode, Mode::kHelp);
  std::istringstream lines(help.text);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) EXPECT_LE(line.size(), 89u) << line;
  EXPECT_LE(count, 64);
  // Each option that a help names is one that the parser knows there.
  const std::regex option("--[a-z_]+");
  const std::vector<std::vector<std::string>> words = {{}, {"train"}, {"predict"}};
  for (const std::vector<std::string>& word : words) {
    const auto with = [&](const std::string& argument) {
      std::vector<std::string> arguments = word;
      arguments.push_back(argument);
      return arguments;
    };
    const LaunchOptions shown = Good(with("--help"));
    EXPECT_EQ(shown.mode, Mode::kHelp);
    std::istringstream text(shown.text);
    for (std::string line; std::getline(text, line);) EXPECT_LE(line.size(), 92u) << line;
    for (std::sregex_iterator i(shown.text.begin(), shown.text.end(), option), end; i != end; ++i) {
      const auto parsed = Parse(with(i->str()));
      if (parsed.ok()) continue;
      EXPECT_THAT(parsed.error().message,
                  AnyOf(HasSubstr("needs a value"), HasSubstr("nothing to run")))
          << i->str();
    }
  }
  EXPECT_THAT(Good({"train", "--help"}).text, HasSubstr("--metrics_jsonl"));
  EXPECT_THAT(Good({"predict", "--help"}).text, HasSubstr("--prompt"));
}

TEST(ParseOptions, JobCommandsGoBeforeProgramsOfThatName) {
  const LaunchOptions logs = Good({"logs", "last", "-f"});
  EXPECT_EQ(logs.mode, Mode::kJobCommand);
  EXPECT_THAT(logs.program, ElementsAre("logs", "last", "-f"));
  EXPECT_EQ(Good({"--detach", "./ps"}).mode, Mode::kProgram);
  EXPECT_TRUE(Good({"--detach", "./ps"}).detach);
  const auto mixed = Parse({"--num_gpus", "2", "ps"});
  ASSERT_FALSE(mixed.ok());
  EXPECT_THAT(mixed.error().message, HasSubstr("./ps"));
}

TEST(ParseOptions, Version) {
  const LaunchOptions options = Good({"--version"});
  EXPECT_EQ(options.mode, Mode::kVersion);
  EXPECT_TRUE(std::regex_match(options.text, std::regex("dslaunch [0-9]+\\.[0-9]+\\.[0-9]+\n")))
      << options.text;
}

}  // namespace
}  // namespace dslaunch
