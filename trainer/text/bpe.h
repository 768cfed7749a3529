// Implements byte pair encoding: joins the characters or bytes of a word by ranked merges (Sennrich
// et al., arXiv 1508.07909), as the tokenizers package does. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace dslaunch {

struct BpeOptions {
  bool bytes = false;          // true if the smallest units are bytes, not characters
  std::optional<int32_t> unk;  // token of unknown units; nullopt to omit them
  bool fuse_unk = false;       // true to replace a run of unknown units by one `unk`
  bool byte_fallback = false;  // true to replace unknown characters by tokens of their bytes
  bool ignore_merges = false;  // true to encode a word in the vocabulary as one token
};

struct BpeMerge {
  int32_t left = 0;
  int32_t right = 0;
  int32_t result = 0;
};

// Divides words into tokens of a vocabulary. Const methods may be called from several threads.
class Bpe {
 public:
  using Vocabulary = std::unordered_map<std::string, int32_t>;

  // Makes an encoder. `merges` are in the order of their ranks; the last of equal pairs is used.
  // With options.bytes, the keys of the vocabulary are bytes, else UTF-8. Preconditions: ids are
  // not negative, and every token of a merge is in the vocabulary.
  Bpe(Vocabulary vocabulary, const std::vector<BpeMerge>& merges, const BpeOptions& options);

  const Vocabulary& vocabulary() const { return vocabulary_; }

  // Appends the tokens of `word`, which is UTF-8, to `ids`.
  void Encode(std::string_view word, std::vector<int32_t>& ids) const;

 private:
  // An entry for a merge in a hash table with open addressing.
  struct Slot {
    uint64_t pair = kEmpty;
    uint64_t merge = kNone;  // rank in the upper half, resulting token in the lower half
  };
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  static constexpr uint64_t kNone = ~uint64_t{0};

  void AddUnits(std::string_view word, std::vector<int32_t>& ids) const;
  bool AddFallback(std::string_view character, std::vector<int32_t>& ids) const;
  size_t SlotOf(uint64_t pair) const;
  uint64_t MergeOf(int32_t left, int32_t right) const;
  size_t MergeShort(std::span<int32_t> ids) const;
  size_t MergeLong(std::span<int32_t> ids) const;

  Vocabulary vocabulary_;
  BpeOptions options_;
  std::vector<Slot> slots_;  // hash table of merges, whose size is a power of two
  // Ids of the tokens of single bytes, or of ASCII characters; -1 if the vocabulary lacks the
  // token.
  std::array<int32_t, 256> unit_ids_{};
  std::array<int32_t, 256> fallback_ids_{};
};

// Caches the tokens of recent words. A word replaces another word with the same slot. Not
// thread-safe.
class WordCache {
 public:
  WordCache() : entries_(kEntries) {}

  // Appends the tokens of `word` to `ids`, from the cache or computed by `bpe`. Precondition: `bpe`
  // is the same in all calls.
  void Encode(const Bpe& bpe, std::string_view word, std::vector<int32_t>& ids);

 private:
  static constexpr size_t kEntries = 1 << 15;
  static constexpr size_t kMaxBytes = 30;
  static constexpr size_t kMaxIds = 8;
  struct Entry {
    uint8_t bytes = 0;
    uint8_t count = 0;
    char word[kMaxBytes];
    int32_t ids[kMaxIds];
  };

  std::vector<Entry> entries_;
};

}  // namespace dslaunch
