// Stores the state file of `dslaunch tune`: the results of a search, from which the next search
// about the same problem continues. Also formats the rows of `--json`. All functions are pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/tune/tuner.h"

namespace dslaunch {

// Returns a row as a JSON object; docs/reference/json.md lists its fields.
nlohmann::ordered_json RowJson(const TuneProblem& problem, const TuneRow& row);

// Returns a key that distinguishes searches, as hexadecimal digits. The key depends on the recipe
// and on `place`, the nodes and options of the job.
std::string TuneKey(const std::string& recipe_json, const std::vector<std::string>& place);

// Returns the text of a state file with the rows of a search.
std::string StateText(const TuneProblem& problem, const std::string& key,
                      const std::vector<TuneRow>& rows);

// Reads the text of the state file `path`. Returns kBadInput if the text is malformed, or if it is
// about a search with a different key than `key`.
Result<std::vector<TuneRow>> ReadState(const std::string& text, const std::string& key,
                                       const std::string& path);

}  // namespace dslaunch
