#include "trainer/text/tokenizer.h"

#include <utility>

#include "trainer/weights/json_file.h"

namespace dslaunch {
namespace {

constexpr uintmax_t kMaxFileBytes = 128u << 20;

// Returns the vocabulary with bytes as keys, because byte-level vocabularies represent bytes by
// characters. Tokens with other characters are omitted, because no text contains them.
Bpe::Vocabulary UnitsOf(const TokenizerParts& parts) {
  if (!parts.bpe.bytes) return parts.ids;
  Bpe::Vocabulary units;
  for (const auto& [token, id] : parts.ids) {
    if (std::optional<std::string> bytes = BytesOfToken(token)) {
      units.emplace(*std::move(bytes), id);
    }
  }
  return units;
}

}  // namespace

Tokenizer Tokenizer::Read(const std::string& folder) {
  const std::string path = folder + "/tokenizer.json";
  return Tokenizer(ReadTokenizerJson(ReadJsonFile(path, kMaxFileBytes), path));
}

Tokenizer::Tokenizer(TokenizerParts parts)
    : parts_(std::move(parts)), bpe_(UnitsOf(parts_), parts_.merges, parts_.bpe) {
  tokens_.resize(static_cast<size_t>(parts_.vocab_size));
  for (const auto& [token, id] : parts_.ids) {
    tokens_[static_cast<size_t>(id)] = {.text = token, .exists = true, .special = false};
  }
  for (const AddedToken& added : parts_.added_tokens) {
    Token& token = tokens_[static_cast<size_t>(added.id)];
    token.special = added.special;
    if (!added.normalized) {
      raw_tokens_.Add(added.content, added);
      continue;
    }
    // The tokenizers package decodes a normalized token to its normalized form, so this form is
    // stored.
    token.text = Normalize(parts_.normalizer, added.content);
    normalized_tokens_.Add(token.text, added);
  }
}

std::optional<int32_t> Tokenizer::IdOf(const std::string& token) const {
  const auto found = parts_.ids.find(token);
  return found == parts_.ids.end() ? std::nullopt : std::optional(found->second);
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special) const {
  std::vector<std::string> texts;
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size()) continue;
    const Token& token = tokens_[static_cast<size_t>(id)];
    if (token.exists && !(skip_special && token.special)) texts.push_back(token.text);
  }
  return DecodeTokens(parts_.decoder, std::move(texts));
}

void TokenEncoder::EncodeDocument(std::string_view text, std::vector<int32_t>& ids) {
  const std::vector<int32_t>& before = tokenizer_.before();
  const std::vector<int32_t>& after = tokenizer_.after();
  ids.insert(ids.end(), before.begin(), before.end());
  Encode(text, ids);
  ids.insert(ids.end(), after.begin(), after.end());
}

void TokenEncoder::Encode(std::string_view text, std::vector<int32_t>& ids, TextStart start) {
  if (tokenizer_.raw_tokens_.empty()) {
    if (!text.empty()) EncodeRaw(text, start, ids);
    return;
  }
  for (const Section& section : tokenizer_.raw_tokens_.Divide(text)) {
    const auto& [begin, end] = section.range;
    if (section.token >= 0) {
      ids.push_back(section.token);
    } else {
      EncodeRaw(text.substr(begin, end - begin), begin == 0 ? start : TextStart::kToken, ids);
    }
  }
}

void TokenEncoder::EncodeRaw(std::string_view text, TextStart start, std::vector<int32_t>& ids) {
  const std::vector<NormalizerStep>& steps = tokenizer_.parts_.normalizer;
  std::string normal;
  if (!steps.empty()) {
    normal = Normalize(steps, text, start);
    text = normal;
  }
  if (tokenizer_.normalized_tokens_.empty()) return EncodeNormalized(text, start, ids);
  for (const Section& section : tokenizer_.normalized_tokens_.Divide(text)) {
    const auto& [begin, end] = section.range;
    if (section.token >= 0) {
      ids.push_back(section.token);
    } else {
      EncodeNormalized(text.substr(begin, end - begin), begin == 0 ? start : TextStart::kToken,
                       ids);
    }
  }
}

void TokenEncoder::EncodeNormalized(std::string_view text, TextStart start,
                                    std::vector<int32_t>& ids) {
  if (text.empty()) return;
  words_.text.assign(text);
  words_.ranges.assign(1, {0, text.size()});
  PreTokenize(tokenizer_.parts_.pre_tokenizer, start, words_);
  const std::string_view all = words_.text;
  for (const auto& [begin, end] : words_.ranges) {
    cache_.Encode(tokenizer_.bpe_, all.substr(begin, end - begin), ids);
  }
}

}  // namespace dslaunch
