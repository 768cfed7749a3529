// Converts between text and tokens with the tokenizer.json of a model. Ids equal those of the
// tokenizers package.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/text/tokenizer_json.h"

namespace dslaunch {

// A tokenizer that was read from tokenizer.json. Const methods may be called from several threads.
class Tokenizer {
 public:
  // Reads tokenizer.json in `folder`. Throws kBadInput if the file is missing or larger than 128
  // MiB, or if ReadTokenizerJson does not accept its content.
  static Tokenizer Read(const std::string& folder);

  explicit Tokenizer(TokenizerParts parts);

  // Returns the largest id plus 1.
  int64_t vocab_size() const { return static_cast<int64_t>(tokens_.size()); }

  // Returns the id of a token, which is written as in tokenizer.json; nullopt if there is no such
  // token.
  std::optional<int32_t> IdOf(const std::string& token) const;

  // Returns the tokens that the model expects before a text, such as the token bos.
  const std::vector<int32_t>& before() const { return parts_.before; }
  // Returns the tokens that the model expects after a text, such as the token eos.
  const std::vector<int32_t>& after() const { return parts_.after; }

  // Returns the text of the tokens `ids`. Omits unknown ids, and special tokens if `skip_special`
  // is true.
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

// Converts texts to tokens, and caches the tokens of recent words. `tokenizer` must outlive this
// object. Used by one thread.
class TokenEncoder {
 public:
  explicit TokenEncoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // Appends the tokens of `text` to `ids`. Some tokenizers prepend a space unless `start` states
  // that the text continues another text. Precondition: `text` is UTF-8. Throws kBadInput if a
  // pattern of the tokenizer needs too many steps.
  void Encode(std::string_view text, std::vector<int32_t>& ids,
              TextStart start = TextStart::kDocument);
  // Appends Tokenizer::before(), the tokens of `text` and Tokenizer::after() to `ids`.
  void EncodeDocument(std::string_view text, std::vector<int32_t>& ids);

 private:
  void EncodeRaw(std::string_view text, TextStart start, std::vector<int32_t>& ids);
  void EncodeNormalized(std::string_view text, TextStart start, std::vector<int32_t>& ids);

  const Tokenizer& tokenizer_;
  WordCache cache_;
  Words words_;
};

}  // namespace dslaunch
