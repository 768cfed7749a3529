// Implements the decoders of tokenizer.json, which turn tokens into text. Pure.
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
  std::string content;  // single character that is removed from tokens
  size_t start = 0;     // maximum number of characters removed at the start of each token
  size_t stop = 0;      // maximum number of characters removed at the end of each token
};
struct MetaspaceDecode {
  std::string replacement;
  PrependScheme prepend = PrependScheme::kAlways;
};
using DecoderStep = std::variant<ByteLevelDecode, ByteFallbackDecode, FuseDecode, ReplaceDecode,
                                 StripDecode, MetaspaceDecode>;

// Returns the text of `tokens` after all steps are applied. Without steps, the tokens are joined
// with spaces. Bytes that are not UTF-8 become U+FFFD.
std::string DecodeTokens(const std::vector<DecoderStep>& steps, std::vector<std::string> tokens);

// Returns the bytes of a token in a byte-level vocabulary, or nullopt if the token has a character
// that does not represent a byte. Such vocabularies write each byte as a printable character, by a
// fixed table: 188 bytes are written as the character with the same number, and the others as
// characters from U+0100 on.
std::optional<std::string> BytesOfToken(std::string_view token);

}  // namespace dslaunch
