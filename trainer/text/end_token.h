// Finds the tokens that begin and end a document.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainer/text/tokenizer.h"

namespace dslaunch {

// Returns the id of the eos token that tokenizer_config.json in `folder` names. Throws TrainError
// kBadInput if the file is missing or malformed, if it names no eos token, or if `tokenizer` does
// not have that token.
int32_t EndTokenOf(const std::string& folder, const Tokenizer& tokenizer);
// Returns the id of the bos token that tokenizer_config.json in `folder` names; nullopt if it names
// no bos token. Throws TrainError kBadInput if the file is missing or malformed, or if `tokenizer`
// does not have that token.
std::optional<int32_t> BeginTokenOf(const std::string& folder, const Tokenizer& tokenizer);

}  // namespace dslaunch
