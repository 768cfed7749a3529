// Parses command lines by the option table: splits words into options with their values, and
// arguments. All functions are pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "cli/options/option_layers.h"
#include "cli/options/option_table.h"
#include "cli/options/parsed_flags.h"

namespace dslaunch {

// A section of a command line whose options all come from one table.
struct LinePart {
  struct Other {
    const OptionTable& table;
    std::string place;  // position of the option for the message, such as "after 'train'"
  };
  const OptionTable& table;
  // Tables of the other sections, for the hint about a misplaced option.
  std::vector<Other> others = {};
};

// Returns a kUsage error with the message `what` and a hint to run `help`, a command that prints
// help.
Error UsageError(const std::string& what, std::string_view help);

// The options at the beginning of a command line, and the index of the word that follows them.
struct LeadingOptions {
  OptionLayer options;
  size_t next = 0;  // index of the first word after the options and after "--"
};
// Reads the options from words[begin] up to "--" or the first word that is not an option. Errors
// of this function and of ReadOptionsAndArguments are kUsage and do not name a help command.
Result<LeadingOptions> ReadLeadingOptions(const LinePart& part,
                                          const std::vector<std::string>& words, size_t begin);

// The options and arguments of a command line.
struct OptionsAndArguments {
  OptionLayer options;
  std::vector<std::string> arguments;
};
// Reads all words from words[begin] as options and arguments in any order. All words after "--"
// are arguments.
Result<OptionsAndArguments> ReadOptionsAndArguments(const LinePart& part,
                                                    const std::vector<std::string>& words,
                                                    size_t begin);

// Returns the command of `family` that `words` select, such as "hostfile write"; words[0] is the
// name of the family. Returns nullptr if `words` request the help of the family. Errors are kUsage
// with a hint.
Result<const CommandSpec*> FindCommand(std::string_view family,
                                       const std::vector<std::string>& words);

// Reads the arguments and options of `command` from words[begin] into `flags`, and checks the
// exclusions and requirements of the command's table. Returns nullopt if `words` request the help
// of the command. Errors are kUsage with a hint.
Result<std::optional<ParsedFlags>> ParseCommand(const CommandSpec& command,
                                                const std::vector<std::string>& words, size_t begin,
                                                ParsedFlags flags = {});

}  // namespace dslaunch
