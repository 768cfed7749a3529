// Tokens of text by the tokenizer.json of a model, with the ids that the tokenizers package gives.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/text/tokenizer_json.h"

namespace dslaunch {

// Const methods may be called from several threads.
class Tokenizer {
 public:
  // Reads tokenizer.json in `folder`. Throws as ReadTokenizerJson does, and kBadInput if
  // the file is missing or has more than 128 MiB.
  static Tokenizer Read(const std::string& folder);

  explicit Tokenizer(TokenizerParts parts);

  int64_t vocab_size() const { return static_cast<int64_t>(tokens_.size()); }  // largest id + 1

  // Returns the number of a token, given as in the file; nullopt if there is none.
  std::optional<int32_t> IdOf(const std::string& token) const;

  // The tokens that the model expects before and after a text, such as bos.
  const std::vector<int32_t>& before() const { return parts_.before; }
  const std::vector<int32_t>& after() const { return parts_.after; }

  // Returns the text of tokens. Unknown ids are left out, special tokens too if `skip_special`.
  std::string Decode(std::span<const int32_t> ids, bool skip_special = false) const;

 private:
  friend class TokenEncoder;

  struct Token {
    std::string text;
    bool exists = false;
    bool special = false;
  };

  TokenizerParts parts_;
  Bpe bpe_;
  AddedTokenFinder raw_tokens_;
  AddedTokenFinder normalized_tokens_;
  std::vector<Token> tokens_;  // indexed by id
};

// Encodes texts with memory of recent words. `tokenizer` must outlive it. For one thread.
class TokenEncoder {
 public:
  explicit TokenEncoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // Appends the tokens of `text` to `ids`. Some tokenizers put a space before a text that does not
  // continue another. Precondition: `text` is UTF-8. Throws kBadInput if a pattern of the tokenizer
  // needs too many steps.
  void Encode(std::string_view text, std::vector<int32_t>& ids,
              TextStart start = TextStart::kDocument);
  // Encode() between Tokenizer::before() and after().
  void EncodeDocument(std::string_view text, std::vector<int32_t>& ids);

 private:
  void EncodeRaw(std::string_view text, TextStart start, std::vector<int32_t>& ids);
  void EncodeNormalized(std::string_view text, TextStart start, std::vector<int32_t>& ids);

  const Tokenizer& tokenizer_;
  WordCache cache_;
  Words words_;
};

}  // namespace dslaunch
