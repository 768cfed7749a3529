#include "trainer/program/text.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "base/text/sanitize.h"
#include "trainer/base/train_error.h"
#include "trainer/text/end_token.h"
#include "trainer/text/unicode.h"
#include "trainer/weights/json_file.h"

namespace dslaunch {
namespace {

constexpr char kUnknown[] = "\uFFFD";

// Returns the values of eos_token_id, which is a number or a list of numbers, in the file at
// `path`; empty if the file or the key is missing.
std::vector<int64_t> EndTokensIn(const std::string& path) {
  if (!std::filesystem::exists(path)) return {};
  const nlohmann::json config = ReadJsonFile(path);
  nlohmann::json ids =
      config.is_object() ? config.value("eos_token_id", nlohmann::json()) : nlohmann::json();
  if (ids.is_null()) return {};
  if (!ids.is_array()) ids = nlohmann::json::array({std::move(ids)});
  std::vector<int64_t> tokens;
  for (const nlohmann::json& id : ids) {
    if (!id.is_number_integer()) RefuseInput(path + ": eos_token_id is not a token's number");
    tokens.push_back(id.get<int64_t>());
  }
  return tokens;
}

std::vector<int64_t> Widened(const std::vector<int32_t>& ids) { return {ids.begin(), ids.end()}; }

}  // namespace

TextCodec::TextCodec(const std::string& folder)
    : folder_(folder), tokenizer_(std::make_shared<const Tokenizer>(Tokenizer::Read(folder))) {
  for (const char* file : {"generation_config.json", "config.json"}) {
    end_tokens_ = EndTokensIn(folder + "/" + file);
    if (!end_tokens_.empty()) return;
  }
  if (!std::filesystem::exists(folder + "/tokenizer_config.json")) return;
  end_tokens_ = {EndTokenOf(folder, *tokenizer_)};
}

std::vector<int64_t> TextCodec::TokensOf(const std::string& text) const {
  if (!tokenizer_) {
    const auto bytes = std::span(reinterpret_cast<const unsigned char*>(text.data()), text.size());
    return {bytes.begin(), bytes.end()};
  }
  if (const auto bad = FindInvalidUtf8(text)) {
    RefuseInput("the text has a byte that is not UTF-8, at offset " + std::to_string(*bad));
  }
  std::vector<int32_t> ids;
  TokenEncoder(*tokenizer_).Encode(text, ids);
  return Widened(ids);
}

std::vector<int64_t> TextCodec::before() const {
  return tokenizer_ ? Widened(tokenizer_->before()) : std::vector<int64_t>();
}

int64_t TextCodec::PrefixToken() const {
  if (!tokenizer_) return '\n';
  if (const auto begin = BeginTokenOf(folder_, *tokenizer_)) return *begin;
  return EndTokenOf(folder_, *tokenizer_);
}

std::string TextCodec::TextOf(const std::vector<int64_t>& tokens, bool skip_special) const {
  if (tokenizer_) {
    const std::vector<int32_t> ids(tokens.begin(), tokens.end());
    return tokenizer_->Decode(ids, skip_special);
  }
  std::string text;
  for (const int64_t token : tokens) {
    text += token >= 0 && token < 256 ? std::string(1, static_cast<char>(token)) : kUnknown;
  }
  return text;
}

// Returns the difference of two whole texts, because the first token of a text that is decoded
// alone may lose the space before it. The text includes a character that begins before the first
// token.
std::string TextCodec::TextAfter(const std::vector<int64_t>& tokens, size_t begin_token,
                                 bool skip_special) const {
  const auto middle = tokens.begin() + static_cast<std::ptrdiff_t>(begin_token);
  const std::string before = TextOf({tokens.begin(), middle}, skip_special);
  const std::string whole = TextOf(tokens, skip_special);
  const auto [in_before, in_whole] = std::ranges::mismatch(before, whole);
  size_t begin = static_cast<size_t>(in_whole - whole.begin());
  // Two different characters may begin with the same bytes, so move back to the start of a
  // character.
  while (tokenizer_ && begin > 0 && begin < whole.size() &&
         (static_cast<unsigned char>(whole[begin]) & 0xC0) == 0x80) {
    --begin;
  }
  return whole.substr(begin);
}

std::string TextForTerminal(const std::string& text) {
  std::string shown;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    shown += SanitizeForTerminal(text.substr(at, end - at));
    if (end < text.size()) shown += '\n';
    at = end + 1;
  }
  return shown;
}

void CheckTokens(const std::vector<int64_t>& tokens, int64_t vocab_size, const std::string& place) {
  const auto wrong =
      std::ranges::find_if(tokens, [&](int64_t token) { return token >= vocab_size; });
  if (wrong == tokens.end()) return;
  RefuseInput(place + " has the token " + std::to_string(*wrong) + ", but the model knows " +
              std::to_string(vocab_size) +
              " tokens only; give the tokenizer of this model, or leave the text out");
}

}  // namespace dslaunch
