// The state file of `dslaunch tune`: the results of a search, from which the next one about the
// same problem continues. Also the rows of `--json`. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/tune/tuner.h"

namespace dslaunch {

// A row as an object; docs/reference/json.md has its fields.
nlohmann::ordered_json RowJson(const TuneProblem& problem, const TuneRow& row);

// Returns what distinguishes one search from another, as hexadecimal digits: the recipe, and
// `place`, the nodes and options of the job.
std::string TuneKey(const std::string& recipe_json, const std::vector<std::string>& place);

// Returns the text of a state file.
std::string StateText(const TuneProblem& problem, const std::string& key,
                      const std::vector<TuneRow>& rows);

// Reads the text of the state file `path`. Errors are kBadInput: the text is malformed, or about
// another search than `key`.
Result<std::vector<TuneRow>> ReadState(const std::string& text, const std::string& key,
                                       const std::string& path);

}  // namespace dslaunch
