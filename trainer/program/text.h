// Text whose tokens are its bytes. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dslaunch {

// Throws TrainError kBadInput for a byte that is no token of `vocab_size`.
std::vector<int64_t> TokensOfText(const std::string& text, int64_t vocab_size);

// The reverse, for people: what is no UTF-8 becomes U+FFFD, and what could steer a terminal goes.
std::string TextOfTokens(const std::vector<int64_t>& tokens);

}  // namespace dslaunch
