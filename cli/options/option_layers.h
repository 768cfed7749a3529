// Where options come from, and which one counts: the command line before the run file, and that
// before PET_NAME variables. Pure but for ExpandHome.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/options/option_table.h"
#include "cli/options/parsed_flags.h"

namespace dslaunch {

// What one place says of each option: none of `values` means that it takes the option back, so
// that it is not asked of the places below.
struct OptionLayer {
  std::map<const OptionSpec*, std::vector<FlagValue>> values;

  // Adds a value: of an option given twice the last counts, unless it is repeatable. A path gets
  // its home folder by ExpandHome.
  void Add(const OptionSpec& spec, FlagValue given);
};

// What the variables PET_NAME of `environment` (as environ; null: none) say, as torchrun reads
// them: a flag's is a number, 0 for no.
Result<OptionLayer> EnvironmentLayer(const OptionTable& table, const char* const* environment);

// Reads into `draft` what counts. `layers` are in the order of precedence. What a layer says is
// dropped where one above excludes it; two options of one layer that exclude each other are an
// error, and so are refused options.
Result<void> ReadLayers(const std::vector<OptionLayer>& layers,
                        const std::vector<Exclusion>& exclusions, ParsedFlags& flags);

// An option without the one that it needs is kUsage.
Result<void> CheckRequirements(const std::vector<Requirement>& requirements,
                               const ParsedFlags& flags);

}  // namespace dslaunch
