// Text whose tokens are its bytes. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dslaunch {

// Returns the bytes as tokens. Throws TrainError kBadInput for a byte that is not below
// `vocab_size`.
std::vector<int64_t> TokensOfText(const std::string& text, int64_t vocab_size);

// Returns the text of tokens for people: invalid UTF-8 becomes U+FFFD, and terminal control
// sequences are removed.
std::string TextOfTokens(const std::vector<int64_t>& tokens);

}  // namespace dslaunch
