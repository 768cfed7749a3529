// Merges options from the command line, the run file and PET_NAME variables, in this order of
// precedence. Reads the system only to expand home folders (ExpandHome).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/options/option_table.h"
#include "cli/options/parsed_flags.h"

namespace dslaunch {

// The options from one source. An option whose list in `values` is empty overrides the sources of
// lower precedence and leaves the option unset.
struct OptionLayer {
  std::map<const OptionSpec*, std::vector<FlagValue>> values;

  // Adds a value. If an option is given several times, the last value counts unless the option is
  // repeatable. Applies ExpandHome to paths.
  void Add(const OptionSpec& spec, FlagValue given);
};

// Reads the PET_NAME variables of `environment` (NAME=VALUE strings as in environ; null for none)
// as torchrun does: the value of a flag is a number, and 0 means not set.
Result<OptionLayer> EnvironmentLayer(const OptionTable& table, const char* const* environment);

// Returns the launch options of a layer as the words of a command line.
std::vector<std::string> LaunchWords(const OptionLayer& options);

// Reads the effective values into `flags`. `layers` are in order of precedence, highest first. An
// option is dropped if a higher layer has an option that excludes it. Returns an error for a
// refused option, and for two options of one layer that exclude each other.
Result<void> ReadLayers(const std::vector<OptionLayer>& layers,
                        const std::vector<Exclusion>& exclusions, ParsedFlags& flags);

// Returns a kUsage error if an option is given without an option that it requires.
Result<void> CheckRequirements(const std::vector<Requirement>& requirements,
                               const ParsedFlags& flags);

}  // namespace dslaunch
