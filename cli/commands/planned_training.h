// The training that `--dry_run` prints: the recipe and how the engine divides the ranks. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "proto/job.pb.h"

namespace dslaunch {

// Returns lines for people. `program` has the recipe, and `recipe_source` is its origin.
std::string TrainingText(const std::string& recipe_source, const pb::Program& program,
                         int world_size);

// Returns the value of "train"; docs/reference/json.md lists its fields. Secrets are masked.
nlohmann::ordered_json TrainingJson(const std::string& recipe_source, const pb::Program& program);

}  // namespace dslaunch
