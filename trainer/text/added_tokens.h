// Finds added tokens, such as <|endoftext|>, in a text. They take precedence over all other rules.
// Pure.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trainer/text/pattern.h"

namespace dslaunch {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;     // true if decoding with skip_special omits the token
  bool normalized = false;  // true to search the normalized text instead of the raw text
  bool lstrip = false;      // true if the token includes the white space before it
  bool rstrip = false;      // true if the token includes the white space after it
};

// A part of a text: either a token or the text between tokens.
struct Section {
  TextRange range;
  int32_t token = -1;  // id of the token; -1 if the section is text
};

// Finds the leftmost token of a set in a text; of tokens that begin at the same position, the
// longest. Const methods may be called from several threads.
class AddedTokenFinder {
 public:
  // Adds a token that is found wherever a text contains `content`. A token with empty `content` is
  // never found.
  void Add(const std::string& content, const AddedToken& token);

  bool empty() const { return tokens_.empty(); }

  // Divides `text`, which is UTF-8, into tokens and the text between them. Sections of text are not
  // empty. A token with rstrip includes white space after it, so it may overlap a next token that
  // begins with white space.
  std::vector<Section> Divide(std::string_view text) const;

 private:
  struct Found {
    int32_t id;
    bool lstrip;
    bool rstrip;
  };
  static constexpr int32_t kNoToken = -1;

  // Sets `end` to the end of the longest token that begins at `at`. Returns the token's index in
  // tokens_; kNoToken if no token begins there.
  int32_t LongestAt(std::string_view text, size_t at, size_t& end) const;

  std::vector<Found> tokens_;
  std::vector<int32_t> token_at_node_ = {
      kNoToken};  // token that ends at each node of a trie with bytes as edges; node 0 is the root
  std::unordered_map<uint64_t, uint32_t> edges_;  // child nodes, keyed by node * 256 + byte
  std::bitset<256> first_bytes_;
};

}  // namespace dslaunch
