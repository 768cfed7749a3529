#include "trainer/text/decoder.h"

#include <cstring>

#include "trainer/text/unicode.h"

namespace dslaunch {
namespace {

constexpr size_t kTableEnd = 0x144;  // one more than the last character that represents a byte

// Returns a table of the byte that each character represents; -1 if the character represents no
// byte.
std::array<int16_t, kTableEnd> MakeBytes() {
  std::array<int16_t, kTableEnd> bytes;
  bytes.fill(-1);
  size_t next = 0x100;
  for (int16_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
    bytes[printable ? static_cast<size_t>(byte) : next++] = byte;
  }
  return bytes;
}

using Tokens = std::vector<std::string>;

void Fuse(Tokens& tokens) {
  std::string all;
  for (const std::string& token : tokens) all += token;
  tokens.assign(1, std::move(all));
}

void Apply(const ByteLevelDecode&, Tokens& tokens) {
  for (std::string& token : tokens) {
    if (std::optional<std::string> bytes = BytesOfToken(token)) token = std::move(*bytes);
  }
  Fuse(tokens);
  tokens[0] = ReplaceInvalidUtf8(tokens[0]);
}

// Returns the byte of a byte fallback token, such as <0x0A>; nullopt for other tokens.
std::optional<char> FallbackByte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  int byte = 0;
  for (const char c : token.substr(3, 2)) {
    const char* digits = "0123456789ABCDEF0123456789abcdef";
    const char* digit = c == '\0' ? nullptr : std::strchr(digits, c);
    if (digit == nullptr) return std::nullopt;
    byte = byte * 16 + static_cast<int>((digit - digits) % 16);
  }
  return static_cast<char>(byte);
}

// Joins each run of byte tokens into one token. If the bytes of a run are not UTF-8, each of them
// becomes U+FFFD.
void Apply(const ByteFallbackDecode&, Tokens& tokens) {
  Tokens out;
  std::string run;
  const auto end_run = [&] {
    if (!run.empty() && !FindInvalidUtf8(run)) {
      out.push_back(run);
    } else {
      out.insert(out.end(), run.size(), "\xEF\xBF\xBD");
    }
    run.clear();
  };
  for (std::string& token : tokens) {
    if (const std::optional<char> byte = FallbackByte(token)) {
      run += *byte;
      continue;
    }
    end_run();
    out.push_back(std::move(token));
  }
  end_run();
  tokens = std::move(out);
}

void Apply(const FuseDecode&, Tokens& tokens) { Fuse(tokens); }

void Apply(const ReplaceDecode& step, Tokens& tokens) {
  for (std::string& token : tokens) token = step.search.Replace(token, step.content);
}

void Apply(const StripDecode& step, Tokens& tokens) {
  const size_t size = step.content.size();
  for (std::string& token : tokens) {
    for (size_t i = 0; i < step.start && token.starts_with(step.content); ++i) {
      token.erase(0, size);
    }
    for (size_t i = 0; i < step.stop && token.ends_with(step.content); ++i) {
      token.resize(token.size() - size);
    }
  }
}

void Apply(const MetaspaceDecode& step, Tokens& tokens) {
  const Search search(step.replacement);
  const bool drops = step.prepend != PrependScheme::kNever;
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = search.Replace(tokens[i], i == 0 && drops ? "" : " ");
  }
}

}  // namespace

std::optional<std::string> BytesOfToken(std::string_view token) {
  static const std::array<int16_t, kTableEnd> kBytes = MakeBytes();
  std::string bytes;
  for (size_t at = 0; at < token.size(); at += Utf8Bytes(token[at])) {
    const char32_t c = CodePointAt(token, at);
    if (c >= kTableEnd || kBytes[c] < 0) return std::nullopt;
    bytes += static_cast<char>(kBytes[c]);
  }
  return bytes;
}

std::string DecodeTokens(const std::vector<DecoderStep>& steps, std::vector<std::string> tokens) {
  for (const DecoderStep& step : steps) {
    std::visit([&](const auto& one) { Apply(one, tokens); }, step);
  }
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0 && steps.empty()) text += ' ';
    text += tokens[i];
  }
  return text;
}

}  // namespace dslaunch
