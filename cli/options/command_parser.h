// Reads command lines by the option table: splits words into options with their values, and
// arguments. Pure.
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
    std::string place;  // where the option belongs, for the message: "after 'train'"
  };
  const OptionTable& table;
  // Tables of the other sections, for the hint about a misplaced option.
  std::vector<Other> others = {};
};

// Returns a kUsage error with the message `what` and the hint to run `help`, a command that prints
// help.
Error UsageError(const std::string& what, std::string_view help);

// Reads the options from words[begin] on, up to "--" or the first word that is not an option.
// Errors of this function and the next are kUsage and do not name a help command.
struct LeadingOptions {
  OptionLayer options;
  size_t next = 0;  // index of the first word after the options and after "--"
};
Result<LeadingOptions> ReadLeadingOptions(const LinePart& part,
                                          const std::vector<std::string>& words, size_t begin);

// Reads all words from words[begin] on as options and arguments in any order; after "--" all are
// arguments.
struct OptionsAndArguments {
  OptionLayer options;
  std::vector<std::string> arguments;
};
Result<OptionsAndArguments> ReadOptionsAndArguments(const LinePart& part,
                                                    const std::vector<std::string>& words,
                                                    size_t begin);

// Returns the command of `family` that `words` select ("hostfile write"); words[0] is the name of
// the family. Returns nullptr if the help of the family is requested. Errors are kUsage with a
// hint.
Result<const CommandSpec*> FindCommand(std::string_view family,
                                       const std::vector<std::string>& words);

// Reads the arguments and options of `command` from words[begin] on into `flags`, and checks the
// exclusions and requirements of its table. Returns nullopt if the help of the command is
// requested. Errors are kUsage with a hint.
Result<std::optional<ParsedFlags>> ParseCommand(const CommandSpec& command,
                                                const std::vector<std::string>& words, size_t begin,
                                                ParsedFlags flags = {});

}  // namespace dslaunch
