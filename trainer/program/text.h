// Converts between texts and tokens, with the tokenizer of a language model or as bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trainer/text/tokenizer.h"

namespace dslaunch {

// A tokenizer, or the mapping of tokens to bytes. Const methods may be called from several threads.
class TextCodec {
 public:
  // Makes a codec whose tokens are bytes. No token ends a text.
  TextCodec() = default;
  // Makes a codec with tokenizer.json in `folder`. Reads the tokens that end a text from
  // generation_config.json, else from config.json, else from tokenizer_config.json. Throws
  // kBadInput, naming the file, if a file is malformed or tokenizer.json is missing.
  explicit TextCodec(const std::string& folder);

  // Returns the tokens of a text that does not continue another text. Throws kBadInput if the text
  // is not UTF-8, unless tokens are bytes.
  std::vector<int64_t> TokensOf(const std::string& text) const;
  // Returns the tokens that the model expects before a text, such as the token bos.
  std::vector<int64_t> before() const;
  // Returns the token that precedes a text whose tokens are scored: the tokenizer's bos, else its
  // eos; a line feed if tokens are bytes. Throws kBadInput if tokenizer_config.json names neither
  // bos nor eos.
  int64_t PrefixToken() const;
  const std::vector<int64_t>& end_tokens() const { return end_tokens_; }

  // Returns the text of `tokens`, without special tokens if `skip_special` is true. Unknown tokens,
  // and with a tokenizer also bytes that are not UTF-8, become U+FFFD or are omitted.
  std::string TextOf(const std::vector<int64_t>& tokens, bool skip_special) const;
  // Returns the text that the tokens from index `begin` on append to the text of the tokens before
  // `begin`.
  std::string TextAfter(const std::vector<int64_t>& tokens, size_t begin, bool skip_special) const;

 private:
  std::string folder_;
  std::shared_ptr<const Tokenizer> tokenizer_;  // null if tokens are bytes
  std::vector<int64_t> end_tokens_;
};

// Returns `text` in a form that is safe to print: invalid UTF-8 becomes U+FFFD, and terminal
// control sequences other than line ends are removed.
std::string TextForTerminal(const std::string& text);

// Throws kBadInput, with a message that begins with `place`, if a token is `vocab_size` or larger.
void CheckTokens(const std::vector<int64_t>& tokens, int64_t vocab_size, const std::string& place);

}  // namespace dslaunch
