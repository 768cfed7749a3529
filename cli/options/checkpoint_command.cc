#include "cli/options/checkpoint_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>

#include "base/suggest.h"
#include "cli/options/option_values.h"

namespace dslaunch {
namespace {

constexpr char kHelp[] =
    R"(dslaunch checkpoint ls DIR [--json]
    the checkpoints in DIR, the oldest first: step, date, size, ranks, and whether all files are
    there in full

dslaunch checkpoint verify DIR | FOLDER
    reads every byte of the checkpoints in DIR, or of the one in FOLDER, and names the files that
    are damaged

dslaunch checkpoint export FOLDER OUT [--dtype bf16|fp16|fp32]
    the weights of the checkpoint in FOLDER in Hugging Face's layout, as model.safetensors and
    config.json in OUT; by default in the dtype that was saved

Exit codes: 0; 65, something is damaged or no checkpoint; 64, the command line.
)";

const std::vector<std::string> kActions = {"ls", "verify", "export"};

Error Usage(const std::string& what) {
  return {ExitCode::kUsage, "checkpoint: " + what + (what.back() == '?' ? " See" : "; see") +
                                " dslaunch checkpoint --help"};
}

std::string DidYouMean(const std::string& word, const std::vector<std::string>& known) {
  const std::string near = Nearest(word, known);
  return near.empty() ? "" : ", did you mean " + near + "?";
}

Error UnknownArgument(const CLI::App& app, const std::string& action, const std::string& word) {
  if (!word.starts_with('-')) return Usage(action + " takes no further argument " + Quoted(word));
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  const std::string near = DidYouMean(word, known);
  return Usage(action + ": option " + Quoted(word) + " is not known" + near);
}

}  // namespace

Result<CheckpointCommand> ParseCheckpointCommand(const std::vector<std::string>& words) {
  const std::string action = words.size() > 1 ? words[1] : "";
  CheckpointCommand command;
  if (action == "-h" || action == "--help") {
    command.help = kHelp;
    return command;
  }
  if (action.empty()) return Usage("what? Give ls, verify or export");
  if (std::find(kActions.begin(), kActions.end(), action) == kActions.end()) {
    return Usage("no " + Quoted(action) + DidYouMean(action, kActions));
  }
  CLI::App app;
  bool help = false, json = false;
  std::optional<std::string> path, out, dtype;
  app.set_help_flag();
  app.add_flag("-h,--help", help);
  app.add_option("PATH", path);
  if (action == "ls") app.add_flag("--json", json);
  if (action == "export") {
    app.add_option("OUT", out);
    app.add_option("--dtype", dtype);
  }
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend() - 2));  // as CLI11 wants them
  } catch (const CLI::ExtrasError&) {
    return UnknownArgument(app, action, app.remaining().front());
  } catch (const CLI::Error& error) {
    return Usage(action + ": " + error.what());
  }
  if (help) {
    command.help = kHelp;
    return command;
  }
  if (!path || path->empty()) {
    return Usage(action == "ls"       ? "ls: which folder? Give the one of --checkpoint_dir"
                 : action == "verify" ? "verify: what? Give a checkpoint or a folder of some"
                                      : "export: which checkpoint? Give its folder");
  }
  command.words = {action, *path};
  if (action == "export") {
    if (!out || out->empty()) return Usage("export: where to? Give a folder after the checkpoint");
    command.words.push_back(*out);
  }
  if (json) command.words.push_back("--json");
  if (dtype) {
    const std::vector<std::string> known = {"bf16", "fp16", "fp32"};
    if (std::find(known.begin(), known.end(), *dtype) == known.end()) {
      return Usage("export: --dtype is bf16, fp16 or fp32, not " + Quoted(*dtype) +
                   DidYouMean(*dtype, known));
    }
    command.words.insert(command.words.end(), {"--dtype", *dtype});
  }
  return command;
}

}  // namespace dslaunch
