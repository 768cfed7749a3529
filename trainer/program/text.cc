#include "trainer/program/text.h"

#include "base/text/sanitize.h"
#include "trainer/base/train_error.h"

namespace dslaunch {

std::vector<int64_t> TokensOfText(const std::string& text, int64_t vocab_size) {
  std::vector<int64_t> tokens;
  for (const char character : text) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte >= vocab_size) {
      throw TrainError(ExitCode::kBadInput, "run.prompt holds the byte " + std::to_string(byte) +
                                                ", but the model knows " +
                                                std::to_string(vocab_size) +
                                                " tokens only (model.vocab_size); leave it out");
    }
    tokens.push_back(byte);
  }
  return tokens;
}

std::string TextOfTokens(const std::vector<int64_t>& tokens) {
  std::string text, line;
  for (const int64_t token : tokens) {
    if (token == '\n') {
      text += SanitizeForTerminal(line) + "\n";
      line.clear();
    } else {
      line += token >= 0 && token < 256 ? std::string(1, static_cast<char>(token)) : "\uFFFD";
    }
  }
  return text + SanitizeForTerminal(line);
}

}  // namespace dslaunch
