// Resolves the value "auto" in an engine configuration. Hugging Face's Trainer replaces "auto" by
// its own arguments (transformers, integrations/deepspeed.py); DeepSpeed itself skips such a key in
// most sections, as if it were absent (DeepSpeedConfigModel in runtime/config_utils.py). Pure
// functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace dslaunch {

struct ResolvedAuto {
  // The configuration without "auto". Two keys may still have it: scheduler.params.total_num_steps,
  // which FitToRun replaces, and pipeline.stages, where "auto" is DeepSpeed's own default.
  nlohmann::json engine;
  // Keys whose "auto" was replaced, with the new value as text, of which the user is informed.
  std::vector<std::pair<std::string, std::string>> chosen;
  // Keys with "auto" for which neither DeepSpeed nor the Trainer has a default.
  std::vector<std::string> missing;
};

// Resolves "auto" in `engine`, which may be any JSON. A value that is not an object is returned
// unchanged.
ResolvedAuto ResolveAuto(nlohmann::json engine);

// Returns a notice such as `"auto" is taken as gradient_clipping 1.0 (ORIGIN)`; empty if `chosen`
// is empty.
std::string AutoNotice(const std::vector<std::pair<std::string, std::string>>& chosen,
                       const std::string& origin);

constexpr const char* kTrainerDefaults = "the defaults of Hugging Face's Trainer";

// Replaces each "auto" in `engine` by the value that `defaults` has at the same key, except for the
// length of the schedule. Batch sizes are replaced together, and only if `engine` gives none.
// Returns the replaced keys in the form of ResolvedAuto::chosen.
std::vector<std::pair<std::string, std::string>> FillAuto(nlohmann::json& engine,
                                                          const nlohmann::json& defaults);

}  // namespace dslaunch
