// Tokens that are found in a text before all else, such as <|endoftext|>. Pure.
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
  bool normalized = false;  // found in the normalized text instead of the raw one
  bool lstrip = false;      // includes the white space before it
  bool rstrip = false;      // includes the white space after it
};

// A part of a text: a token, or text between tokens.
struct Section {
  TextRange range;
  int32_t token = -1;  // -1: text
};

// Finds the leftmost, then longest, of a set of tokens. Const methods may be called from several
// threads.
class AddedTokenFinder {
 public:
  // Adds a token that is found as `content`; an empty one is never found.
  void Add(const std::string& content, const AddedToken& token);

  bool empty() const { return tokens_.empty(); }

  // Divides `text`, which is UTF-8, into sections. Text sections are not empty. A token may overlap
  // the one before it, because rstrip takes white space with which it begins.
  std::vector<Section> Divide(std::string_view text) const;

 private:
  struct Found {
    int32_t id;
    bool lstrip;
    bool rstrip;
  };
  static constexpr int32_t kNoToken = -1;

  // Sets `end` after the longest token at `at`. Returns its index, or kNoToken.
  int32_t LongestAt(std::string_view text, size_t at, size_t& end) const;

  std::vector<Found> tokens_;
  std::vector<int32_t> token_at_node_ = {
      kNoToken};  // nodes of a trie with bytes as edges; 0 is the root
  std::unordered_map<uint64_t, uint32_t> edges_;  // children, keyed by node * 256 + byte
  std::bitset<256> first_bytes_;
};

}  // namespace dslaunch
