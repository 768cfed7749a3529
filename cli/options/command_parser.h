// Reads command lines by the table of options: words become options with their values, and
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

// A part of a command line, whose options are those of one table.
struct LinePart {
  struct Other {
    const OptionTable& table;
    std::string place;  // follows "option '--x' belongs ": "after 'train'"
  };
  const OptionTable& table;
  std::vector<Other> others = {};  // where options belong that are not of this part
};

// kUsage: `what`, and which help to read. `help` is the command that prints it.
Error UsageError(const std::string& what, std::string_view help);

// The options at `begin` and after it, up to the first word that is none or to "--".
// Errors of this and the next function are kUsage and do not name a help.
struct LeadingOptions {
  OptionLayer options;
  size_t next = 0;  // the first word that was not taken; "--" was
};
Result<LeadingOptions> ReadLeadingOptions(const LinePart& part,
                                          const std::vector<std::string>& words, size_t begin);

// All words from `begin` on: options and arguments in any order; after "--" arguments only.
struct OptionsAndArguments {
  OptionLayer options;
  std::vector<std::string> arguments;
};
Result<OptionsAndArguments> ReadOptionsAndArguments(const LinePart& part,
                                                    const std::vector<std::string>& words,
                                                    size_t begin);

// The command of `family` that `words`, which begin with the family's name, ask for: "hostfile
// write". nullptr: the family's help is asked for. Errors are kUsage with a hint.
Result<const CommandSpec*> FindCommand(std::string_view family,
                                       const std::vector<std::string>& words);

// What follows a command's own words, from words[begin] on, read into `draft`: arguments, options,
// exclusions and requirements, as its table has them. nullopt: its help is asked for. Errors are
// kUsage with a hint.
Result<std::optional<ParsedFlags>> ParseCommand(const CommandSpec& command,
                                                const std::vector<std::string>& words, size_t begin,
                                                ParsedFlags flags = {});

}  // namespace dslaunch
