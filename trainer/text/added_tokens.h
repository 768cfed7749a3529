// Finds tokens in a text that take precedence over all other rules, such as <|endoftext|>. Pure.
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
  bool special = false;     // omitted from decoded text with skip_special
  bool normalized = false;  // searched for in the normalized text instead of the raw text
  bool lstrip = false;      // includes the white space before it
  bool rstrip = false;      // includes the white space after it
};

// A part of a text: either a token or the text between tokens.
struct Section {
  TextRange range;
  int32_t token = -1;  // id of the token; -1 for text
};

// Finds the leftmost, then longest, token of a set in a text. Const methods may be called from
// several threads.
class AddedTokenFinder {
 public:
  // Adds a token that is found wherever a text contains `content`. A token with empty `content` is
  // never found.
  void Add(const std::string& content, const AddedToken& token);

  bool empty() const { return tokens_.empty(); }

  // Divides `text`, which is UTF-8, into sections. Sections of text are not empty. A token may
  // overlap the token before it, because rstrip includes white space that the next token begins
  // with.
  std::vector<Section> Divide(std::string_view text) const;

 private:
  struct Found {
    int32_t id;
    bool lstrip;
    bool rstrip;
  };
  static constexpr int32_t kNoToken = -1;

  // Sets `end` to the end of the longest token that begins at `at`. Returns the token's index in
  // tokens_, or kNoToken.
  int32_t LongestAt(std::string_view text, size_t at, size_t& end) const;

  std::vector<Found> tokens_;
  std::vector<int32_t> token_at_node_ = {
      kNoToken};  // token that ends at each node of a trie with bytes as edges; node 0 is the root
  std::unordered_map<uint64_t, uint32_t> edges_;  // child nodes, keyed by node * 256 + byte
  std::bitset<256> first_bytes_;
};

}  // namespace dslaunch
