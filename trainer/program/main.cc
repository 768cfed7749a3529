// Implements the program dslaunch-train.
//
// dslaunch-train [RECIPE.json]: runs one rank of a training job. The rank's place in the job comes
//   from the environment (proto/contract/worker_env.h), its recipe from the file or from
//   DSLAUNCH_RECIPE.
// dslaunch-train checkpoint ...: implements `dslaunch checkpoint` (program/checkpoint_tool.h).
// dslaunch-train data ...: implements `dslaunch data` (program/data_tool.h).
// dslaunch-train bench comm ...: runs one rank of `dslaunch bench comm` (bench/measure.h).
// dslaunch-train bench devices: measures GPUs for an agent (bench/devices.h).
// dslaunch-train --version: prints the version, by which `dslaunch doctor` checks the program.
#include <torch/version.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/text/sanitize.h"
#include "dslaunch/version.h"
#include "trainer/base/failure_exit.h"
#include "trainer/base/log.h"
#include "trainer/base/train_error.h"
#include "trainer/bench/devices.h"
#include "trainer/bench/measure.h"
#include "trainer/program/checkpoint_tool.h"
#include "trainer/program/data_tool.h"
#include "trainer/program/run.h"

namespace {

using dslaunch::ExitCode;
using dslaunch::PrintError;
using dslaunch::PrintLine;
using dslaunch::SanitizeForTerminal;
using dslaunch::TrainError;

struct RecipeText {
  std::string json;
  std::string source;  // name of the recipe for messages
};

RecipeText ReadRecipe(int argc, char** argv) {
  if (argc > 2) throw TrainError(ExitCode::kUsage, "usage: dslaunch-train [RECIPE.json]");
  if (argc == 2) {
    std::ifstream file(argv[1], std::ios::binary);
    std::ostringstream text;
    if (!file || !(text << file.rdbuf())) {
      throw TrainError(ExitCode::kBadInput, std::string("cannot read the recipe ") + argv[1]);
    }
    return {text.str(), argv[1]};
  }
  if (const char* json = std::getenv(dslaunch::kRecipeVariable)) return {json, "recipe"};
  throw TrainError(
      ExitCode::kUsage,
      std::string("no recipe: give a JSON file, or start dslaunch-train with `dslaunch train`, "
                  "which sets ") +
          dslaunch::kRecipeVariable);
}

// Runs a command that is not a rank of a job, such as `checkpoint`. Prints its errors and returns
// the exit code.
int ToolMain(const std::string& name, int (*run)(const std::vector<std::string>&),
             const std::vector<std::string>& words) {
  try {
    return run(words);
  } catch (const TrainError& error) {
    PrintError(SanitizeForTerminal("dslaunch: " + name + ": " + error.what()));
    return error.exit_code();
  } catch (const std::exception& error) {
    PrintError(SanitizeForTerminal("dslaunch: " + name + ": internal error: " + error.what()));
    return ToInt(ExitCode::kInternal);
  }
}

// Prints an error of this rank and exits. `message` may quote names from files, so control
// sequences are removed.
[[noreturn]] void Fail(int rank, ExitCode code, const std::string& message) {
  PrintError("dslaunch-train: rank " + std::to_string(rank) + ": " + SanitizeForTerminal(message));
  // Destructors of a broken process group may wait for peers that have exited, so exit() is not
  // used.
  std::_Exit(ToInt(code));
}

// Prevents LibTorch from unregistering its thousands of operators one by one at exit, which takes
// more than a third of the time of starting and ending a rank. Exit handlers that are registered
// later (plugins, CUDA) still run in order.
void LeaveLibTorchAtExit() {
  on_exit(
      [](int status, void*) {
        std::fflush(nullptr);
        _exit(status);
      },
      nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  LeaveLibTorchAtExit();
  // A closed status pipe must not end training, so SIGPIPE is ignored. A write to a closed stdout
  // then fails with an error, which is reported.
  std::signal(SIGPIPE, SIG_IGN);
  if (argc >= 2 && argv[1] == std::string("checkpoint")) {
    return ToolMain("checkpoint", dslaunch::RunCheckpointTool, {argv + 2, argv + argc});
  }
  if (argc >= 2 && argv[1] == std::string("data")) {
    return ToolMain("data", dslaunch::RunDataTool, {argv + 2, argv + argc});
  }
  if (argc >= 3 && argv[1] == std::string("bench") && argv[2] == std::string("devices")) {
    return ToolMain("bench devices", dslaunch::RunBenchDevices, {argv + 3, argv + argc});
  }
  if (argc == 2 && argv[1] == std::string("--version")) {
    PrintLine("dslaunch-train " DSLAUNCH_VERSION ", LibTorch " TORCH_VERSION);
    return ToInt(ExitCode::kOk);
  }
  int rank = 0;
  try {
    const auto env = dslaunch::WorkerEnv::FromEnviron(std::getenv);
    if (!env) Fail(rank, env.error().code, env.error().message);
    rank = env->rank;
    dslaunch::SetFailureExit(
        [rank](const TrainError& error) { Fail(rank, error.code(), error.what()); });
    if (argc >= 3 && argv[1] == std::string("bench") && argv[2] == std::string("comm")) {
      dslaunch::ProcessGroup group(*env);
      dslaunch::RunBenchComm(group, {argv + 3, argv + argc});
      group.Finish();
      return ToInt(ExitCode::kOk);
    }
    const RecipeText recipe = ReadRecipe(argc, argv);
    dslaunch::Run(dslaunch::ParseRecipe(recipe.json, recipe.source, env->world_size), *env);
  } catch (const TrainError& error) {
    Fail(rank, error.code(), error.what());
  } catch (const std::exception& error) {
    Fail(rank, ExitCode::kInternal, std::string("internal error: ") + error.what());
  }
  return ToInt(ExitCode::kOk);
}
