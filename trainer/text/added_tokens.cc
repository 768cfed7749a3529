#include "trainer/text/added_tokens.h"

#include <algorithm>

#include "trainer/text/unicode.h"

namespace dslaunch {
namespace {

bool IsWhiteSpaceAt(std::string_view text, size_t at) {
  return (PropertiesOf(CodePointAt(text, at)) & kWhiteSpace) != 0;
}

// Returns the start of the white space that ends at `end`; at least `least`.
size_t SpaceBefore(std::string_view text, size_t least, size_t end) {
  size_t begin = end;
  while (begin > least) {
    size_t at = begin - 1;
    while ((static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
    if (at < least || !IsWhiteSpaceAt(text, at)) break;
    begin = at;
  }
  return begin;
}

size_t SpaceAfter(std::string_view text, size_t at) {
  while (at < text.size() && IsWhiteSpaceAt(text, at)) at += Utf8Bytes(text[at]);
  return at;
}

}  // namespace

void AddedTokenFinder::Add(const std::string& content, const AddedToken& token) {
  if (content.empty()) return;
  uint64_t node = 0;
  for (const char byte : content) {
    const auto next = static_cast<uint32_t>(token_at_node_.size());
    const auto [edge, added] = edges_.try_emplace(node * 256 + static_cast<uint8_t>(byte), next);
    if (added) token_at_node_.push_back(kNoToken);
    node = edge->second;
  }
  token_at_node_[node] = static_cast<int32_t>(tokens_.size());
  tokens_.push_back({token.id, token.lstrip, token.rstrip});
  first_bytes_.set(static_cast<uint8_t>(content[0]));
}

int32_t AddedTokenFinder::LongestAt(std::string_view text, size_t at, size_t& end) const {
  int32_t longest = kNoToken;
  uint64_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    const auto edge = edges_.find(node * 256 + static_cast<uint8_t>(text[i]));
    if (edge == edges_.end()) break;
    node = edge->second;
    if (token_at_node_[node] == kNoToken) continue;
    longest = token_at_node_[node];
    end = i + 1;
  }
  return longest;
}

std::vector<Section> AddedTokenFinder::Divide(std::string_view text) const {
  std::vector<Section> sections;
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    size_t end = 0;
    const bool possible = first_bytes_[static_cast<uint8_t>(text[at])];
    const int32_t index = possible ? LongestAt(text, at, end) : kNoToken;
    if (index == kNoToken) {
      ++at;
      continue;
    }
    const Found& token = tokens_[static_cast<size_t>(index)];
    const size_t begin = token.lstrip ? std::max(SpaceBefore(text, 0, at), done) : at;
    const size_t stop = token.rstrip ? SpaceAfter(text, end) : end;
    if (begin > done) sections.push_back({{done, begin}});
    sections.push_back({{begin, stop}, token.id});
    done = stop;
    at = end;
  }
  if (done < text.size()) sections.push_back({{done, text.size()}});
  return sections;
}

}  // namespace dslaunch
