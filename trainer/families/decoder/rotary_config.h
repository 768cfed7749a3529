// Reads and writes the keys of the rotary embedding in the three forms of config.json:
// rope_parameters (transformers 5), rope_theta with rope_scaling and rope_type (transformers 4), or
// rope_scaling with type (older versions).
#pragma once

#include <array>
#include <nlohmann/json.hpp>

#include "trainer/config/json/json_object.h"
#include "trainer/families/decoder/decoder_config.h"

namespace dslaunch {

inline constexpr char kRotaryKey[] = "rope_parameters";
inline constexpr std::array kRotaryKeys = {kRotaryKey, "rope_theta", "rope_scaling"};

// Reads kRotaryKeys of a model that accepts at most `max_position_embeddings` tokens. As in
// transformers, rope_scaling replaces rope_parameters if both are present. Throws ConfigError if
// the keys are not valid.
RotaryConfig ReadRotary(JsonObject& section, int64_t max_position_embeddings);

// Returns the value of rope_parameters: the keys that have an effect for the type.
nlohmann::ordered_json ShowRotary(const RotaryConfig& rotary);
// Returns the settings as rope_theta and rope_scaling, the keys that older versions of transformers
// read.
nlohmann::json ShowOlderRotary(const RotaryConfig& rotary);

// Throws ConfigError unless partial_rotary_factor is absent, null or 1.
void RefusePartialRotary(const JsonObject& object);

}  // namespace dslaunch
