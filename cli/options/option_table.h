// Every option of dslaunch and of its commands, said once: the parser, --help, the man page, shell
// completion and what is refused all come from here.
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <vector>

#include "base/exit_code.h"

namespace dslaunch {

struct ParsedFlags;  // cli/options/parsed_flags.h

// In the order in which --help shows them.
enum class OptionGroup {
  kWhere,
  kProgram,
  kOutput,
  kFailure,
  kSsh,
  kPerNode,
  kOther,
  kTranslated,  // of another launcher: another name for an option, or a variable of the ranks
  kAccepted,    // changes nothing here, and says why
  kRefused,
  kTrainWhat,
  kTrainLength,
  kTrainKeep,
  kPredict,
  kPredictText,
  kCommand,  // of a command such as ps
};

// The heading of a group.
const char* Title(OptionGroup group);

// One value of one option, from the command line, a run file or the environment.
struct FlagValue {
  std::string name;                   // in messages: "--show", "PET_TEE", "dslaunch.yaml:3:3: show"
  std::string text;                   // empty for a flag
  ExitCode blame = ExitCode::kUsage;  // where it is wrong
};

// What completion offers for a value beside the words of the table.
enum class Offers { kNothing, kJobs, kRecipes, kRecipeKeys, kCommands };

// What a value is, for the parser (flags have none), completion and the reference page.
enum class ValueKind { kFlag, kText, kNumber, kSeconds, kChoice, kFile, kFolder };

// "flag", "text", "number", ...
const char* Name(ValueKind kind);

// Where a value goes: a field of Draft, by a reader that checks it. cli/options/option_readers.h
// has those that many options share.
struct OptionTarget {
  // Throws ValidationError (option_values.h), whose text begins with given.name.
  using Read = void (*)(const FlagValue& given, ParsedFlags& flags);
  using Words = std::vector<std::string> (*)();

  constexpr OptionTarget() = default;
  template <std::convertible_to<Read> Reader>
  constexpr OptionTarget(Reader reader, ValueKind value_kind = ValueKind::kText,
                         Words choice_words = nullptr)
      : read(reader), kind(value_kind), choices(choice_words) {}

  Read read = nullptr;  // null: of what is refused
  ValueKind kind = ValueKind::kText;
  Words choices = nullptr;  // of kChoice: the words that it may be
};

struct OptionSpec {
  const char* names;  // "-H,--hostfile", with '_'; the first long one is its name, others alias it
  const char* also = "";   // other launchers' names for it, which --help does not show
  const char* value = "";  // placeholder, "FILE", "N|auto"; empty for flags and kChoice
  OptionGroup group;
  const char* help;  // without a full stop
  OptionTarget target = {};
  const char* default_value = "";  // as typed, where it is one value that does not depend on others
  const char* refusal = nullptr;   // why, and what to do instead
  bool deepspeed = false;          // deepspeed 0.19 has it
  bool torchrun = false;           // torchrun 2.11 has it
  bool pet = false;                // and takes its default from PET_NAME
  bool horovod = false;            // horovodrun 0.28 has it
  bool accelerate = false;         // `accelerate launch` 1.15 has it
  bool common = false;             // in --help, not in --help_all only
  bool repeatable = false;         // each one counts
  bool may_be_empty = false;       // an empty value is as none: the original's default is that
  bool line_only = false;          // launch options: not in a run file
  // Why a run file that the command line does not name may not give it, as "runs code".
  const char* needs_trust = nullptr;
  Offers offers = Offers::kNothing;  // what completion offers for its value
};

inline constexpr char kRunsCode[] = "runs code";

// "--hostfile", or "-t" where there is no long name.
std::string_view NameOf(const OptionSpec& spec);
std::vector<std::string> NamesOf(const OptionSpec& spec);
std::string VariableOf(const OptionSpec& spec);  // "PET_NNODES"; empty: none
bool IsFlag(const OptionSpec& spec);

// "FILE", "auto|cuda|cpu"; empty for a flag.
std::string PlaceholderOf(const OptionSpec& spec);

// "-H, --hostfile FILE".
std::string HeadingOf(const OptionSpec& spec);

// Its help and its default, or why it is refused.
std::string DescriptionOf(const OptionSpec& spec);

// The words that a value may be, also where it may be something else: "N|auto|cpu|gpu" -> auto,
// cpu, gpu.
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

// An option that means something only beside another.
struct Requirement {
  const char* option;
  const char* needs;
  const char* why;  // follows the option's name: "overwrites a file; add --output FILE"
};

// A word of a command that is no option, such as JOB.
struct ArgumentSpec {
  const char* name;
  OptionTarget target;
  const char* missing = nullptr;  // the message where it is not given; null: it may be left out
  std::vector<std::string> words = {};  // that completion offers
  Offers offers = Offers::kNothing;     // and these
};

// A command line that shows what a command is for.
struct Example {
  const char* command;
  const char* what;  // one sentence, without a full stop
};

// A command of dslaunch. Those of one family share their first word, as "hostfile write" and
// "hostfile check".
struct CommandSpec {
  const char* name;          // empty: a launch of PROGRAM, with the launch options
  const char* help;          // without a full stop
  const char* details = "";  // more lines for its help
  std::vector<ArgumentSpec> arguments = {};
  const OptionTable* options;
  std::vector<Exclusion> exclusions = {};
  std::vector<Requirement> requirements = {};
  std::vector<Example> examples = {};  // at least one
};

// All commands, the launch first.
const std::vector<CommandSpec>& Commands();

std::string_view FamilyOf(const CommandSpec& command);                // "hostfile"
std::string_view ActionOf(const CommandSpec& command);                // "write"; empty: it is alone
std::vector<const CommandSpec*> CommandsOf(std::string_view family);  // none: no command's name
std::string UsageOf(const CommandSpec& command);  // "dslaunch logs JOB [options]"

// The command that `word`, which names none, most likely stands for, as typed after "dslaunch":
// "train" for trian, "stop JOB" for kill; empty: none. `word` may be the name of a program; one
// that no job would run on all slots is in `only_command`.
struct MeantCommand {
  std::string command;
  bool only_command = false;
};
MeantCommand FindMeantCommand(const std::string& word);

// The option that `name` names: "--num-gpus", "-H", or the unambiguous beginning of a name that
// deepspeed or torchrun has, as their parsers allow it.
struct FoundOption {
  const OptionSpec* spec = nullptr;
  std::vector<std::string> candidates;  // two or more: what an ambiguous beginning could be
};
FoundOption FindOption(const OptionTable& table, std::string_view name);

}  // namespace dslaunch
