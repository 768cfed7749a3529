#include "trainer/text/bpe.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <queue>

#include "trainer/text/unicode.h"

namespace dslaunch {
namespace {

// Maximum number of symbols for which a scan is faster than a heap.
constexpr size_t kMaxShort = 64;

uint64_t PairOf(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

uint64_t Mix(uint64_t value) {
  value *= 0x9E3779B97F4A7C15u;  // odd constant: 2^64 divided by the golden ratio
  return value ^ value >> 32;
}

uint64_t HashOf(std::string_view word) {
  uint64_t hash = word.size();
  for (size_t at = 0; at < word.size(); at += sizeof(uint64_t)) {
    uint64_t part = 0;
    std::memcpy(&part, word.data() + at, std::min(sizeof part, word.size() - at));
    hash = Mix(hash ^ part);
  }
  return hash;
}

}  // namespace

Bpe::Bpe(Vocabulary vocabulary, const std::vector<BpeMerge>& merges, const BpeOptions& options)
    : vocabulary_(std::move(vocabulary)),
      options_(options),
      slots_(std::bit_ceil(2 * merges.size() + 2)) {
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const uint64_t pair = PairOf(merges[rank].left, merges[rank].right);
    slots_[SlotOf(pair)] = {pair,
                            uint64_t{rank} << 32 | static_cast<uint32_t>(merges[rank].result)};
  }
  const auto id_of = [&](const std::string& token) {
    const auto found = vocabulary_.find(token);
    return found == vocabulary_.end() ? -1 : found->second;
  };
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_unit = options.bytes || byte < 0x80;
    unit_ids_[byte] = is_unit ? id_of(std::string(1, static_cast<char>(byte))) : -1;
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    fallback_ids_[byte] = options.byte_fallback ? id_of(name) : -1;
  }
}

// Returns the index of the slot that contains `pair`, or of the empty slot in which to insert it.
size_t Bpe::SlotOf(uint64_t pair) const {
  const size_t mask = slots_.size() - 1;
  size_t at = Mix(pair) & mask;
  while (slots_[at].pair != pair && slots_[at].pair != kEmpty) at = (at + 1) & mask;
  return at;
}

uint64_t Bpe::MergeOf(int32_t left, int32_t right) const {
  return slots_[SlotOf(PairOf(left, right))].merge;
}

// Appends the tokens of the character's bytes and returns true if the vocabulary has all of them;
// otherwise appends nothing and returns false.
bool Bpe::AddFallback(std::string_view character, std::vector<int32_t>& ids) const {
  const auto id_of = [&](char byte) { return fallback_ids_[static_cast<uint8_t>(byte)]; };
  if (std::ranges::any_of(character, [&](char byte) { return id_of(byte) < 0; })) return false;
  for (const char byte : character) ids.push_back(id_of(byte));
  return true;
}

// Appends the tokens of the word's smallest units, which are characters or bytes. The token of an
// unknown unit is appended after the tokens of byte fallbacks that follow it, because the
// tokenizers package appends it only at the next known unit.
void Bpe::AddUnits(std::string_view word, std::vector<int32_t>& ids) const {
  bool unk_waits = false;
  for (size_t at = 0; at < word.size();) {
    const size_t bytes = options_.bytes ? 1 : Utf8Bytes(word[at]);
    int32_t id = unit_ids_[static_cast<uint8_t>(word[at])];
    if (bytes > 1) {
      const auto found = vocabulary_.find(std::string(word.substr(at, bytes)));
      id = found == vocabulary_.end() ? -1 : found->second;
    }
    const std::string_view unit = word.substr(at, bytes);
    at += bytes;
    if (id >= 0) {
      if (unk_waits) ids.push_back(*options_.unk);
      unk_waits = false;
      ids.push_back(id);
    } else if (!AddFallback(unit, ids) && options_.unk) {
      if (unk_waits && !options_.fuse_unk) ids.push_back(*options_.unk);
      unk_waits = true;
    }
  }
  if (unk_waits) ids.push_back(*options_.unk);
}

void Bpe::Encode(std::string_view word, std::vector<int32_t>& ids) const {
  if (options_.ignore_merges) {
    const auto found = vocabulary_.find(std::string(word));
    if (found != vocabulary_.end()) {
      ids.push_back(found->second);
      return;
    }
  }
  const size_t begin = ids.size();
  AddUnits(word, ids);
  const std::span units = std::span(ids).subspan(begin);
  ids.resize(begin + (units.size() <= kMaxShort ? MergeShort(units) : MergeLong(units)));
}

// Merges pairs in place, the pair of the lowest rank first, the leftmost of equal ranks first.
// Returns the number of remaining symbols. Precondition: `ids` has at most kMaxShort symbols.
size_t Bpe::MergeShort(std::span<int32_t> ids) const {
  size_t size = ids.size();
  if (size < 2) return size;
  std::array<uint64_t, kMaxShort> merges;  // merges[i] joins ids[i] and ids[i + 1]
  for (size_t i = 0; i + 1 < size; ++i) merges[i] = MergeOf(ids[i], ids[i + 1]);
  while (size > 1) {
    const size_t at = static_cast<size_t>(
        std::min_element(merges.begin(), merges.begin() + size - 1) - merges.begin());
    if (merges[at] == kNone) break;
    ids[at] = static_cast<int32_t>(merges[at] & 0xFFFFFFFF);
    std::copy(ids.begin() + at + 2, ids.begin() + size, ids.begin() + at + 1);
    std::copy(merges.begin() + at + 1, merges.begin() + size - 1, merges.begin() + at);
    --size;
    if (at > 0) merges[at - 1] = MergeOf(ids[at - 1], ids[at]);
    if (at + 1 < size) merges[at] = MergeOf(ids[at], ids[at + 1]);
  }
  return size;
}

// Returns the same result as MergeShort in n log n steps, with a linked list of symbols and a heap
// of merges, some of which may be outdated.
size_t Bpe::MergeLong(std::span<int32_t> ids) const {
  constexpr uint32_t kEndOfList = ~uint32_t{0};
  struct Candidate {
    uint64_t merge;
    uint32_t at;
    bool operator>(const Candidate& other) const {
      const uint64_t rank = merge >> 32;
      const uint64_t others = other.merge >> 32;
      return rank != others ? rank > others : at > other.at;
    }
  };
  const auto size = static_cast<uint32_t>(ids.size());
  std::vector<uint32_t> next(size);
  std::vector<uint32_t> previous(size);
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap;
  const auto push = [&](uint32_t at) {
    if (at == kEndOfList || next[at] == kEndOfList) return;
    const uint64_t merge = MergeOf(ids[at], ids[next[at]]);
    if (merge != kNone) heap.push({merge, at});
  };
  for (uint32_t i = 0; i < size; ++i) {
    previous[i] = i == 0 ? kEndOfList : i - 1;
    next[i] = i + 1 == size ? kEndOfList : i + 1;
  }
  for (uint32_t i = 0; i < size; ++i) push(i);
  while (!heap.empty()) {
    const Candidate best = heap.top();
    heap.pop();
    const uint32_t right = next[best.at];
    if (ids[best.at] < 0 || right == kEndOfList ||
        MergeOf(ids[best.at], ids[right]) != best.merge) {
      continue;
    }
    ids[best.at] = static_cast<int32_t>(best.merge & 0xFFFFFFFF);
    ids[right] = -1;
    next[best.at] = next[right];
    if (next[right] != kEndOfList) previous[next[right]] = best.at;
    push(previous[best.at]);
    push(best.at);
  }
  return static_cast<size_t>(std::remove(ids.begin(), ids.end(), -1) - ids.begin());
}

void WordCache::Encode(const Bpe& bpe, std::string_view word, std::vector<int32_t>& ids) {
  if (word.size() > kMaxBytes) return bpe.Encode(word, ids);
  Entry& entry = entries_[HashOf(word) % kEntries];
  if (entry.bytes == word.size() && std::memcmp(entry.word, word.data(), word.size()) == 0) {
    ids.insert(ids.end(), entry.ids, entry.ids + entry.count);
    return;
  }
  const size_t begin = ids.size();
  bpe.Encode(word, ids);
  const size_t count = ids.size() - begin;
  if (count > kMaxIds || word.empty()) return;
  entry.bytes = static_cast<uint8_t>(word.size());
  entry.count = static_cast<uint8_t>(count);
  std::memcpy(entry.word, word.data(), word.size());
  std::copy(ids.begin() + static_cast<std::ptrdiff_t>(begin), ids.end(), entry.ids);
}

}  // namespace dslaunch
