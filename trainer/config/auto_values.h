// Resolves "auto" in an engine configuration. Hugging Face's Trainer replaces it by its own
// arguments (transformers, integrations/deepspeed.py); DeepSpeed itself skips such a key in most
// sections, as if it were absent (DeepSpeedConfigModel in runtime/config_utils.py). Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace dslaunch {

struct ResolvedAuto {
  // The configuration without "auto", except for scheduler.params.total_num_steps (FitToRun) and
  // pipeline.stages, where "auto" is DeepSpeed's own default.
  nlohmann::json engine;
  // Keys and values, as text, that replaced an "auto" and of which the user is informed.
  std::vector<std::pair<std::string, std::string>> chosen;
  // Keys for which neither DeepSpeed nor the Trainer's defaults have a value.
  std::vector<std::string> missing;
};

// Resolves "auto" in `engine`, any JSON. A value that is not an object is returned unchanged.
ResolvedAuto ResolveAuto(nlohmann::json engine);

// Returns `"auto" is taken as gradient_clipping 1.0 (ORIGIN)`; empty if nothing was chosen.
std::string AutoNotice(const std::vector<std::pair<std::string, std::string>>& chosen,
                       const std::string& origin);

constexpr const char* kTrainerDefaults = "the defaults of Hugging Face's Trainer";

// Replaces each "auto" in `engine` by the value that `defaults` has at the same key, except for the
// length of the schedule. Batch sizes are replaced together, and only if `engine` gives none.
// Returns what was replaced, in the form of ResolvedAuto::chosen.
std::vector<std::pair<std::string, std::string>> FillAuto(nlohmann::json& engine,
                                                          const nlohmann::json& defaults);

}  // namespace dslaunch
