// Converts between texts and tokens, by the tokenizer of a language model or as bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trainer/text/tokenizer.h"

namespace dslaunch {

// Const methods may be called from several threads.
class TextCodec {
 public:
  // A codec for which tokens are bytes, and no token ends a text.
  TextCodec() = default;
  // Reads tokenizer.json in `folder`, and the tokens that end a text from
  // generation_config.json, else from config.json, else from tokenizer_config.json. Throws
  // kBadInput, naming the file, if one is malformed or the tokenizer is missing.
  explicit TextCodec(const std::string& folder);

  // Returns the tokens of a text that does not continue another text. Throws kBadInput if the text
  // is not UTF-8 and tokens are not bytes.
  std::vector<int64_t> TokensOf(const std::string& text) const;
  // Returns the tokens that the model expects before a text, such as bos.
  std::vector<int64_t> before() const;
  // Returns the token that precedes a text whose tokens are scored: the tokenizer's bos, else eos;
  // with bytes, a line end. Throws kBadInput if tokenizer_config.json names neither.
  int64_t PrefixToken() const;
  const std::vector<int64_t>& end_tokens() const { return end_tokens_; }

  // Returns the text of tokens, with special tokens or without. Unknown tokens, and with a
  // tokenizer bytes that are not UTF-8, are U+FFFD or left out.
  std::string TextOf(const std::vector<int64_t>& tokens, bool skip_special) const;
  // Returns the text that the tokens from index `begin` on add to the text of the tokens before
  // them.
  std::string TextAfter(const std::vector<int64_t>& tokens, size_t begin, bool skip_special) const;

 private:
  std::string folder_;
  std::shared_ptr<const Tokenizer> tokenizer_;  // null: bytes
  std::vector<int64_t> end_tokens_;
};

// Returns a text for people: invalid UTF-8 becomes U+FFFD, and terminal control sequences other
// than line ends are removed.
std::string TextForTerminal(const std::string& text);

// Throws kBadInput, beginning with `place`, if a token is not below `vocab_size`.
void CheckTokens(const std::vector<int64_t>& tokens, int64_t vocab_size, const std::string& place);

}  // namespace dslaunch
