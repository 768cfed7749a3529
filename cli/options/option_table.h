// Every option of dslaunch and of its commands, said once: the parser, --help, the man page, shell
// completion and what is refused all come from here.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/exit_code.h"

namespace dslaunch {

struct Draft;  // cli/options/option_draft.h

// In the order in which --help shows them.
enum class OptionGroup {
  kWhere,
  kProgram,
  kOutput,
  kFailure,
  kSsh,
  kPerNode,
  kOther,
  kAccepted,  // changes nothing here, and says why
  kRefused,
  kTrainWhat,
  kTrainLength,
  kTrainKeep,
  kPredict,
  kPredictText,
};

// The heading of a group.
const char* Title(OptionGroup group);

// One value of one option, from the command line, a run file or the environment.
struct Given {
  std::string name;                   // in messages: "--tee", "PET_TEE", "dslaunch.yaml:3:3: tee"
  std::string text;                   // empty for a flag
  ExitCode blame = ExitCode::kUsage;  // where it is wrong
};

struct OptionSpec {
  const char* names;  // "-H,--hostfile", with '_'; the first long one is its name, others alias it
  const char* value = "";  // "FILE", "local|ssh"; empty: a flag
  OptionGroup group;
  const char* help;  // without a full stop
  // Throws CLI::ValidationError that begins with given.name. Null for what is refused.
  void (*read)(const Given& given, Draft& draft) = nullptr;
  const char* refusal = nullptr;  // why, and what to do instead
  bool deepspeed = false;         // deepspeed 0.19 has it
  bool torchrun = false;          // torchrun 2.11 has it
  bool pet = false;               // and takes its default from PET_NAME
  bool common = false;            // in --help, not in --help_all only
  bool repeatable = false;        // each one counts
  bool may_be_empty = false;      // an empty value is as none: the original's default is that
};

// "--hostfile", or "-t" where there is no long name.
std::string_view NameOf(const OptionSpec& spec);
std::vector<std::string> NamesOf(const OptionSpec& spec);
std::string VariableOf(const OptionSpec& spec);  // "PET_NNODES"; empty: none
bool IsFlag(const OptionSpec& spec);

// The words that a value may be, from its description: "N|auto|cpu|gpu" -> auto, cpu, gpu.
std::vector<std::string> ChoicesOf(const OptionSpec& spec);

using OptionTable = std::vector<OptionSpec>;

const OptionTable& LaunchOptionTable();
const OptionTable& TrainOptionTable();
const OptionTable& PredictOptionTable();

// Two options of which a command line has one at most.
struct Exclusion {
  const char* one;
  const char* other;
  const char* why = "";          // a clause for the message
  const char* unless = nullptr;  // this option is given too
};
const std::vector<Exclusion>& LaunchExclusions();

// A command of dslaunch's own. `words` are those that may follow it: actions, shells.
struct CommandSpec {
  const char* name;
  const char* arguments;
  const char* help;
  std::vector<std::string> words;
  OptionTable options;
};
const std::vector<CommandSpec>& Commands();

// The option that `name` names: "--num-gpus", "-H", or the unambiguous beginning of a name that
// deepspeed or torchrun has, as their parsers allow it.
struct FoundOption {
  const OptionSpec* spec = nullptr;
  std::vector<std::string> candidates;  // two or more: what an ambiguous beginning could be
};
FoundOption FindOption(const OptionTable& table, std::string_view name);

}  // namespace dslaunch
