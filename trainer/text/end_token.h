// The tokens that begin and end a document.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainer/text/tokenizer.h"

namespace dslaunch {

// Returns the eos token that tokenizer_config.json in `folder` names. Throws TrainError kBadInput
// if the file is missing or malformed, names none, or one that `tokenizer` lacks.
int32_t EndTokenOf(const std::string& folder, const Tokenizer& tokenizer);
// Returns the bos token likewise, but nullopt if none is named.
std::optional<int32_t> BeginTokenOf(const std::string& folder, const Tokenizer& tokenizer);

}  // namespace dslaunch
