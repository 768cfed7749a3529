// The decoders of tokenizer.json, which make text of tokens. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trainer/text/pre_tokenizer.h"
#include "trainer/text/search.h"

namespace dslaunch {

struct ByteLevelDecode {};
struct ByteFallbackDecode {};
struct FuseDecode {};
struct ReplaceDecode {
  Search search;
  std::string content;
};
struct StripDecode {
  std::string content;  // one character
  size_t start = 0;     // maximum number removed at the start of each token
  size_t stop = 0;      // maximum number removed at the end of each token
};
struct MetaspaceDecode {
  std::string replacement;
  PrependScheme prepend = PrependScheme::kAlways;
};
using DecoderStep = std::variant<ByteLevelDecode, ByteFallbackDecode, FuseDecode, ReplaceDecode,
                                 StripDecode, MetaspaceDecode>;

// Returns the text of `tokens` after all steps; without steps they are joined with spaces. Bytes
// that are not UTF-8 become U+FFFD.
std::string DecodeTokens(const std::vector<DecoderStep>& steps, std::vector<std::string> tokens);

// Byte-level vocabularies write each byte as a printable character, by a fixed table in which 188
// bytes are the character of their number, and the others are U+0100 and so on.
// Returns the bytes of a token, or nullopt if it has a character outside of the table.
std::optional<std::string> BytesOfToken(std::string_view token);

}  // namespace dslaunch
