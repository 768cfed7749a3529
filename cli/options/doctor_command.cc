#include "cli/options/doctor_command.h"

#include <algorithm>

#include "cli/options/option_values.h"

namespace dslaunch {
namespace {

constexpr char kHelp[] =
    R"(dslaunch doctor [launch options] [train]
    looks at every node that a job with these options would use, all at once, and at this machine
    without a hostfile. Nothing is started but the agent, and nothing is left on a node but that.

      dslaunch doctor -H hostfile
      dslaunch doctor -H hostfile --include node1@node2 --num_gpus 4 train

  SSH step by step: resolve, connect, handshake, host key, login, copy agent (through a command's
  stdin; no SFTP is needed), start agent; then versions, cores, memory, GPUs and their driver, the
  trainer (must run there with `train`, else it is only missed), clocks, free disk, limits, which
  folders nodes share, and whether every other node reaches the one that hosts the rendezvous.

  --json    all that was found, for programs
  Exit code: 0 when all is well (warnings may be), 69 when something fails; each failing line has a
  way out below it.
)";

// Stands where a program would.
constexpr char kNoProgram[] = "true";

Error Usage(const std::string& what) {
  return {ExitCode::kUsage, "doctor: " + what + "; see dslaunch doctor --help"};
}

Result<LaunchOptions> Parse(std::vector<std::string> words, const Surroundings& surroundings) {
  words.front() = "dslaunch";
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  return ParseOptions(static_cast<int>(argv.size()), argv.data(), surroundings);
}

}  // namespace

Result<DoctorCommand> ParseDoctorCommand(const std::vector<std::string>& words,
                                         const Surroundings& surroundings) {
  DoctorCommand command;
  if (std::ranges::any_of(
          words, [](const std::string& word) { return word == "-h" || word == "--help"; })) {
    command.help = kHelp;
    return command;
  }
  using Mode = LaunchOptions::Mode;
  const Result<LaunchOptions> with_task = Parse(words, surroundings);
  if (with_task.ok() && with_task->mode == Mode::kTrain) {
    command.trains = true;
    command.launch = *with_task;
  } else if (with_task.ok()) {
    return Usage("takes launch options and 'train' only, no further argument " +
                 (with_task->program.empty() ? "" : Quoted(with_task->program.front())));
  } else {
    std::vector<std::string> with_program = words;
    with_program.push_back(kNoProgram);
    const Result<LaunchOptions> alone = Parse(with_program, surroundings);
    if (!alone.ok()) return alone.error();
    if (alone->mode != Mode::kProgram) return with_task.error();
    command.launch = *alone;
  }
  if (command.launch.per_node) {
    return Usage(
        "--node_rank and --rdzv_endpoint start jobs without SSH, by which doctor looks at nodes; "
        "give it a hostfile");
  }
  return command;
}

}  // namespace dslaunch
