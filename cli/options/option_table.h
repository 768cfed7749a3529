// Declares every option of dslaunch and its commands, defined once: the parser, --help, the man
// page, shell completion and the refusals all use this table.
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <vector>

#include "base/exit_code.h"

namespace dslaunch {

struct ParsedFlags;  // defined in cli/options/parsed_flags.h

// Groups of options, in the order of --help.
enum class OptionGroup {
  kWhere,
  kProgram,
  kOutput,
  kFailure,
  kSsh,
  kPerNode,
  kOther,
  // Another launcher's name for an option, or an option that sets a variable of the ranks.
  kTranslated,
  kAccepted,  // accepted without effect, for a reason that its help explains
  kRefused,
  kTrainWhat,
  kTrainLength,
  kTrainKeep,
  kPredict,
  kPredictText,
  kTune,
  kCommand,  // options of a command such as `ps`
};

// Returns the heading of `group` in --help.
const char* Title(OptionGroup group);

// A value of an option, from the command line, a run file or the environment.
struct FlagValue {
  std::string name;  // name for messages, such as "--show", "PET_TEE" or "dslaunch.yaml:3:3: show"
  std::string text;  // value as given; empty for a flag
  ExitCode blame = ExitCode::kUsage;  // exit code if the value is wrong
};

// The kinds of values that completion offers besides the choices in the table.
enum class Offers { kNothing, kJobs, kRecipes, kRecipeKeys, kCommands };

// Kinds of values, for the parser (flags take no value), completion and the reference page.
enum class ValueKind { kFlag, kText, kNumber, kSeconds, kChoice, kFile, kFolder };

// Returns the kind as a word, such as "flag", "text" or "number".
const char* Name(ValueKind kind);

// The destination of a value: a reader that checks the value and stores it in a field of
// ParsedFlags. cli/options/option_readers.h has the readers that many options share.
struct OptionTarget {
  // Checks and stores `given`. Throws ValidationError (option_values.h), whose text begins with
  // given.name, if the value is not valid.
  using Read = void (*)(const FlagValue& given, ParsedFlags& flags);
  using Words = std::vector<std::string> (*)();

  constexpr OptionTarget() = default;
  template <std::convertible_to<Read> Reader>
  constexpr OptionTarget(Reader reader, ValueKind value_kind = ValueKind::kText,
                         Words choice_words = nullptr)
      : read(reader), kind(value_kind), choices(choice_words) {}

  Read read = nullptr;  // reader of the value; null if the option is refused
  ValueKind kind = ValueKind::kText;
  Words choices = nullptr;  // returns the accepted words, for kChoice; otherwise null
};

struct OptionSpec {
  // Names such as "-H,--hostfile", with '_'; the first long name is canonical, the others are
  // aliases.
  const char* names;
  const char* also = "";  // aliases from other launchers, which --help does not show
  // Placeholder such as "FILE" or "N|auto"; empty for flags and for most of kChoice, whose words
  // are shown.
  const char* value = "";
  OptionGroup group;
  const char* help;  // description without a full stop
  OptionTarget target = {};
  // Default as the user would type it; empty if the option has no default or a default that depends
  // on other options.
  const char* default_value = "";
  // Reason why the option is refused, with a hint; null if the option is accepted.
  const char* refusal = nullptr;
  bool deepspeed = false;   // true if the option exists in deepspeed 0.19
  bool torchrun = false;    // true if the option exists in torchrun 2.11
  bool pet = false;         // true if the variable PET_NAME supplies a default, as in torchrun
  bool horovod = false;     // true if the option exists in horovodrun 0.28
  bool accelerate = false;  // true if the option exists in `accelerate launch` 1.15
  bool common = false;      // true if --help shows the option; false if only --help_all does
  bool repeatable = false;  // true if every occurrence counts, not only the last one
  // True if an empty value is accepted and means that the option is not given, as in the original
  // launcher.
  bool may_be_empty = false;
  bool line_only = false;  // true for a launch option that is not allowed in a run file
  // The reason why only the command line, or a run file that it names, may give the option, such as
  // "runs code"; null if any run file may.
  const char* needs_trust = nullptr;
  Offers offers = Offers::kNothing;  // kind of values that completion offers
};

inline constexpr char kRunsCode[] = "runs code";

// Returns the canonical name such as "--hostfile"; the short name, such as "-t", if the option has
// no long name.
std::string_view NameOf(const OptionSpec& spec);

// Returns all names and aliases of the option, such as "-H" and "--hostfile".
std::vector<std::string> NamesOf(const OptionSpec& spec);
// Returns the variable that supplies the default, such as "PET_NNODES"; empty if none does.
std::string VariableOf(const OptionSpec& spec);
bool IsFlag(const OptionSpec& spec);

// Returns the placeholder of the value, such as "FILE" or "auto|cuda|cpu"; empty for a flag.
std::string PlaceholderOf(const OptionSpec& spec);

// Returns the heading of the option's help, such as "-H, --hostfile FILE".
std::string HeadingOf(const OptionSpec& spec);

// Returns the help with the default, or the reason why the option is refused.
std::string DescriptionOf(const OptionSpec& spec);

// Returns the words among the accepted values, even if other values are accepted too: auto, cpu and
// gpu for "N|auto|cpu|gpu".
std::vector<std::string> ChoicesOf(const OptionSpec& spec);

using OptionTable = std::vector<OptionSpec>;

const OptionTable& LaunchOptionTable();
const OptionTable& TrainOptionTable();
const OptionTable& PredictOptionTable();
const OptionTable& TuneOptionTable();
const OptionTable& BenchCommOptions();

// Two options that must not be given together.
struct Exclusion {
  const char* one;
  const char* other;
  const char* why = "";  // subordinate clause with the reason, for the message; may be empty
  // An option that, if given, suspends the exclusion; may be null.
  const char* unless = nullptr;
};
const std::vector<Exclusion>& LaunchExclusions();

// An option that requires another option, or one of two other options.
struct Requirement {
  const char* option;
  const char* needs;
  // The rest of the message after the option's name, such as "overwrites a file; add --output
  // FILE".
  const char* why;
  // Another option that meets the requirement; null if there is none.
  const char* or_needs = nullptr;
};

// A positional argument of a command, such as JOB.
struct ArgumentSpec {
  const char* name;
  OptionTarget target;
  // Message if the argument is missing; null if the argument is optional.
  const char* missing = nullptr;
  std::vector<std::string> words = {};  // values that completion offers for the argument
  Offers offers = Offers::kNothing;     // values that completion offers besides `words`
  // True if the argument takes all further words too; allowed for the last argument only.
  bool repeated = false;
};

// An example in the help of a command.
struct Example {
  const char* command;
  const char* what;  // effect of `command`: one sentence without a full stop
};

// A command of dslaunch. Commands of one family share the first word, such as "hostfile write" and
// "hostfile check".
struct CommandSpec {
  const char* name;          // name such as "hostfile write"; empty for the launch of PROGRAM
  const char* help;          // description without a full stop
  const char* details = "";  // further lines of the help; may be empty
  std::vector<ArgumentSpec> arguments = {};
  const OptionTable* options;
  std::vector<Exclusion> exclusions = {};
  std::vector<Requirement> requirements = {};
  std::vector<Example> examples = {};  // examples for the help; at least one
};

// Returns all commands. The launch of PROGRAM comes first.
const std::vector<CommandSpec>& Commands();

// Returns the first word of the name, such as "hostfile".
std::string_view FamilyOf(const CommandSpec& command);
// Returns the second word of the name, such as "write" for "hostfile write"; empty if the command
// has no family.
std::string_view ActionOf(const CommandSpec& command);
// Returns the commands of `family`; empty if no such family exists.
std::vector<const CommandSpec*> CommandsOf(std::string_view family);
// Returns the usage line, such as "dslaunch logs JOB [options]".
std::string UsageOf(const CommandSpec& command);

// The result of FindMeantCommand.
struct MeantCommand {
  std::string command;
  bool only_command = false;
};
// Returns the command that `word` most likely means, as typed after "dslaunch": "train" for
// trian, "stop JOB" for kill; empty if no command is similar. `only_command` is set if `word`
// cannot be meant as the name of a program, because no job runs a program of that name on all
// slots. Precondition: `word` is not the name of a command.
MeantCommand FindMeantCommand(const std::string& word);

// The result of FindOption.
struct FoundOption {
  // Row of the option; nullptr if no option or several options match.
  const OptionSpec* spec = nullptr;
  // The options that an ambiguous prefix could mean, at least two; otherwise empty.
  std::vector<std::string> candidates;
};
// Finds an option by one of its names, such as "--num-gpus" or "-H". Also accepts an unambiguous
// prefix of a name of deepspeed or torchrun, because their parsers accept prefixes.
FoundOption FindOption(const OptionTable& table, std::string_view name);

}  // namespace dslaunch
