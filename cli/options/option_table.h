// Every option of dslaunch and its commands, defined once: the parser, --help, the man page, shell
// completion and the refusals all use this table.
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <vector>

#include "base/exit_code.h"

namespace dslaunch {

struct ParsedFlags;  // cli/options/parsed_flags.h

// Groups of options, in the order of --help.
enum class OptionGroup {
  kWhere,
  kProgram,
  kOutput,
  kFailure,
  kSsh,
  kPerNode,
  kOther,
  kTranslated,  // another launcher's name for an option, or an option that sets a variable of the
                // ranks
  kAccepted,    // accepted without effect; its help explains why
  kRefused,
  kTrainWhat,
  kTrainLength,
  kTrainKeep,
  kPredict,
  kPredictText,
  kTune,
  kCommand,  // options of a command such as ps
};

// Returns the heading of `group` in --help.
const char* Title(OptionGroup group);

// One value of one option, from the command line, a run file or the environment.
struct FlagValue {
  std::string name;  // name for messages: "--show", "PET_TEE", "dslaunch.yaml:3:3: show"
  std::string text;  // empty for a flag
  ExitCode blame = ExitCode::kUsage;  // exit code if the value is wrong
};

// The values that completion offers besides the choices in the table.
enum class Offers { kNothing, kJobs, kRecipes, kRecipeKeys, kCommands };

// Kinds of values, for the parser (flags take no value), completion and the reference page.
enum class ValueKind { kFlag, kText, kNumber, kSeconds, kChoice, kFile, kFolder };

// Returns "flag", "text", "number", ...
const char* Name(ValueKind kind);

// The destination of a value: a field of ParsedFlags, with a reader that checks the value and
// stores it. cli/options/option_readers.h has the readers that many options share.
struct OptionTarget {
  // Throws ValidationError (option_values.h), whose text begins with given.name.
  using Read = void (*)(const FlagValue& given, ParsedFlags& flags);
  using Words = std::vector<std::string> (*)();

  constexpr OptionTarget() = default;
  template <std::convertible_to<Read> Reader>
  constexpr OptionTarget(Reader reader, ValueKind value_kind = ValueKind::kText,
                         Words choice_words = nullptr)
      : read(reader), kind(value_kind), choices(choice_words) {}

  Read read = nullptr;  // null if the option is refused
  ValueKind kind = ValueKind::kText;
  Words choices = nullptr;  // returns the accepted words, for kChoice
};

struct OptionSpec {
  const char* names;  // "-H,--hostfile", with '_'; the first long name is the canonical one, the
                      // rest are aliases
  const char* also = "";   // aliases from other launchers, which --help does not show
  const char* value = "";  // placeholder, "FILE", "N|auto"; empty for flags and for most of
                           // kChoice, which show their words
  OptionGroup group;
  const char* help;  // without a full stop
  OptionTarget target = {};
  // The text to type; empty if there is no default or if it depends on other options.
  const char* default_value = "";
  const char* refusal = nullptr;  // why the option is refused, and the hint; null if it is accepted
  bool deepspeed = false;         // exists in deepspeed 0.19
  bool torchrun = false;          // exists in torchrun 2.11
  bool pet = false;               // PET_NAME supplies its default, as in torchrun
  bool horovod = false;           // exists in horovodrun 0.28
  bool accelerate = false;        // exists in `accelerate launch` 1.15
  bool common = false;            // shown by --help; other options only by --help_all
  bool repeatable = false;        // every occurrence counts, not only the last
  // An empty value means that the option is not given, as in the original launcher.
  bool may_be_empty = false;
  bool line_only = false;  // launch option that is not allowed in a run file
  // The reason why a run file that the command line does not name must not give it: "runs code".
  const char* needs_trust = nullptr;
  Offers offers = Offers::kNothing;  // values that completion offers
};

inline constexpr char kRunsCode[] = "runs code";

// Returns "--hostfile", or "-t" if there is no long name.
std::string_view NameOf(const OptionSpec& spec);
std::vector<std::string> NamesOf(const OptionSpec& spec);
std::string VariableOf(const OptionSpec& spec);  // "PET_NNODES"; empty if there is none
bool IsFlag(const OptionSpec& spec);

// Returns "FILE" or "auto|cuda|cpu"; empty for a flag.
std::string PlaceholderOf(const OptionSpec& spec);

// Returns "-H, --hostfile FILE".
std::string HeadingOf(const OptionSpec& spec);

// Returns the help with the default, or why the option is refused.
std::string DescriptionOf(const OptionSpec& spec);

// Returns the words that a value may be, even if other values are allowed too: "N|auto|cpu|gpu" ->
// auto, cpu, gpu.
std::vector<std::string> ChoicesOf(const OptionSpec& spec);

using OptionTable = std::vector<OptionSpec>;

const OptionTable& LaunchOptionTable();
const OptionTable& TrainOptionTable();
const OptionTable& PredictOptionTable();
const OptionTable& TuneOptionTable();
const OptionTable& BenchCommOptions();

// Two options that exclude each other.
struct Exclusion {
  const char* one;
  const char* other;
  const char* why = "";  // clause for the message; may be empty
  // The exclusion does not apply if this option is given; may be null.
  const char* unless = nullptr;
};
const std::vector<Exclusion>& LaunchExclusions();

// An option that requires another one, or one of two.
struct Requirement {
  const char* option;
  const char* needs;
  // Rest of the message, after the option's name: "overwrites a file; add --output FILE".
  const char* why;
  const char* or_needs = nullptr;
};

// A positional argument of a command, such as JOB.
struct ArgumentSpec {
  const char* name;
  OptionTarget target;
  const char* missing = nullptr;  // message if the argument is missing; null if it is optional
  std::vector<std::string> words = {};  // words that completion offers
  Offers offers = Offers::kNothing;     // values that completion offers besides `words`
  bool repeated = false;                // takes all further words too; the last argument only
};

// An example in the help of a command.
struct Example {
  const char* command;
  const char* what;  // effect of `command`: one sentence, without a full stop
};

// A command of dslaunch. Commands of one family share the first word, as "hostfile write" and
// "hostfile check".
struct CommandSpec {
  const char* name;          // empty for the launch of PROGRAM, with the launch options
  const char* help;          // without a full stop
  const char* details = "";  // further lines of the help
  std::vector<ArgumentSpec> arguments = {};
  const OptionTable* options;
  std::vector<Exclusion> exclusions = {};
  std::vector<Requirement> requirements = {};
  std::vector<Example> examples = {};  // at least one
};

// Returns all commands, the launch first.
const std::vector<CommandSpec>& Commands();

std::string_view FamilyOf(const CommandSpec& command);  // "hostfile"
// Returns "write" for "hostfile write"; empty if the command has no family.
std::string_view ActionOf(const CommandSpec& command);
// Returns the commands of a family; empty if there are none.
std::vector<const CommandSpec*> CommandsOf(std::string_view family);
std::string UsageOf(const CommandSpec& command);  // "dslaunch logs JOB [options]"

// Returns the command that `word` most likely stands for, as typed after "dslaunch": "train" for
// trian, "stop JOB" for kill; empty if there is none. Precondition: `word` is not the name of a
// command. It may still be the name of a program, except if `only_command` is set: no job runs such
// a program on all slots.
struct MeantCommand {
  std::string command;
  bool only_command = false;
};
MeantCommand FindMeantCommand(const std::string& word);

// Finds an option by one of its names: "--num-gpus", "-H", or an unambiguous prefix of a name that
// deepspeed or torchrun has, because their parsers accept prefixes.
struct FoundOption {
  const OptionSpec* spec = nullptr;
  // The options that an ambiguous prefix could mean, at least two.
  std::vector<std::string> candidates;
};
FoundOption FindOption(const OptionTable& table, std::string_view name);

}  // namespace dslaunch
