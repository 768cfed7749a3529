// Formats the training that `--dry_run` prints: the recipe, and how the engine divides the ranks.
// All functions are pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "proto/job.pb.h"

namespace dslaunch {

// Returns the training as lines for people. `program` has the recipe, and `recipe_source` is its
// origin.
std::string TrainingText(const std::string& recipe_source, const pb::Program& program,
                         int world_size);

// Returns the JSON value of "train", whose fields docs/reference/json.md lists. Secrets are masked.
nlohmann::ordered_json TrainingJson(const std::string& recipe_source, const pb::Program& program);

}  // namespace dslaunch
