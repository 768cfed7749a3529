#include "cli/options/doctor_command.h"

#include <algorithm>

#include "base/text/sanitize.h"
#include "cli/options/command_parser.h"
#include "cli/options/help_text.h"

namespace dslaunch {
namespace {

// Stands for the program if the command line has none, because the launch options require a
// program.
constexpr char kNoProgram[] = "true";

Error DoctorUsage(const std::string& what) {
  return UsageError("doctor: " + what, "dslaunch doctor --help");
}

Result<LaunchOptions> Parse(std::vector<std::string> words, const ParseContext& context) {
  words.front() = "dslaunch";
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  return ParseOptions(static_cast<int>(argv.size()), argv.data(), context);
}

}  // namespace

Result<DoctorCommand> ParseDoctorCommand(const std::vector<std::string>& words,
                                         const ParseContext& context) {
  DoctorCommand command;
  if (std::ranges::any_of(
          words, [](const std::string& word) { return word == "-h" || word == "--help"; })) {
    command.help = CommandHelpText("doctor");
    return command;
  }
  using Mode = LaunchOptions::Mode;
  const Result<LaunchOptions> with_task = Parse(words, context);
  if (with_task.ok() && (with_task->mode == Mode::kTrain || with_task->mode == Mode::kProgram)) {
    command.trains = with_task->mode == Mode::kTrain || with_task->runs_trainer;
    command.has_program = !command.trains;
    command.launch = *with_task;
  } else if (with_task.ok()) {
    return DoctorUsage("takes launch options, then 'train' or a program, not " +
                       (with_task->program.empty() ? "this" : Quoted(with_task->program.front())));
  } else {
    std::vector<std::string> with_program = words;
    with_program.push_back(kNoProgram);
    const Result<LaunchOptions> alone = Parse(with_program, context);
    if (!alone.ok()) return alone.error();
    if (alone->mode != Mode::kProgram) return with_task.error();
    command.launch = *alone;
  }
  if (command.launch.per_node) {
    return DoctorUsage(
        "--node_rank and --rdzv_endpoint start jobs without SSH, but doctor reaches nodes over "
        "SSH; give it a hostfile");
  }
  return command;
}

}  // namespace dslaunch
