#include "trainer/program/prompts.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "trainer/base/train_error.h"
#include "trainer/config/json/json_object.h"
#include "trainer/prepare/input_blocks.h"
#include "trainer/text/json_lines.h"

namespace dslaunch {
namespace {

void UseLines(const InputBlock& block,
              const std::function<void(const nlohmann::json&, const std::string&)>& use) {
  ForEachLine(block.content, block.line, [&](std::string_view line, int64_t number) {
    if (IsBlankLine(line)) return;
    const std::string place = block.file + ":" + std::to_string(number);
    const nlohmann::json json = ParseJson(std::string(line), place, JsonComments::kRefuse);
    if (!json.is_object()) RefuseInput(place + ": is not a JSON object");
    use(json, place);
  });
}

}  // namespace

void ForEachJsonLine(const std::string& file,
                     const std::function<void(const nlohmann::json&, const std::string&)>& use) {
  InputBlocks blocks({file});
  while (const std::optional<InputBlock> block = blocks.Next()) {
    if (!block->is_json)
      RefuseInput(file + ": must have JSON lines, and a name that ends in .jsonl");
    UseLines(*block, use);
  }
}

TextPrompt MakePrompt(const std::string& text, const TextCodec& codec, int64_t vocab_size,
                      int64_t positions, const std::string& place) {
  TextPrompt prompt = {text, codec.before()};
  try {
    const std::vector<int64_t> tokens = codec.TokensOf(text);
    prompt.tokens.insert(prompt.tokens.end(), tokens.begin(), tokens.end());
  } catch (const TrainError& error) {
    throw TrainError(error.code(), place + ": " + error.what());
  }
  if (prompt.tokens.empty()) RefuseInput(place + ": the prompt is empty; give it a text");
  CheckTokens(prompt.tokens, vocab_size, place + ": the prompt");
  const auto length = static_cast<int64_t>(prompt.tokens.size());
  if (length > positions) {
    RefuseInput(place + ": the prompt has " + std::to_string(length) +
                " tokens, more than the model takes, " + std::to_string(positions) +
                "; shorten it");
  }
  return prompt;
}

std::vector<TextPrompt> ReadPrompts(const std::string& file, const TextCodec& codec,
                                    int64_t vocab_size, int64_t positions) {
  std::vector<TextPrompt> prompts;
  std::map<std::string, uint64_t> seen;
  ForEachJsonLine(file, [&](const nlohmann::json& object, const std::string& place) {
    prompts.push_back(
        MakePrompt(TextUnder("prompt", object, place + ":"), codec, vocab_size, positions, place));
    prompts.back().repetition = seen[prompts.back().text]++;
  });
  if (prompts.empty()) RefuseInput(file + ": has no prompts; give lines {\"prompt\": \"...\"}");
  return prompts;
}

bool HasStopText(const TextCodec& codec, const std::vector<std::string>& stop,
                 const std::vector<int64_t>& tokens, size_t given) {
  if (stop.empty()) return false;
  // A character has up to 4 tokens, and a few tokens before the text determine whether it begins
  // with a space.
  constexpr size_t kMargin = 8;
  const size_t longest = std::ranges::max(stop, {}, &std::string::size).size();
  const size_t looked_at = std::min(tokens.size() - given, longest + kMargin);
  const size_t shown = std::min(tokens.size(), looked_at + kMargin);
  const std::vector<int64_t> last(tokens.end() - static_cast<std::ptrdiff_t>(shown), tokens.end());
  const std::string text = codec.TextAfter(last, shown - looked_at, /*skip_special=*/false);
  return std::ranges::any_of(
      stop, [&](const std::string& one) { return text.find(one) != std::string::npos; });
}

std::string CutAtStop(const std::string& text, const std::vector<std::string>& stop) {
  size_t end = text.size();
  for (const std::string& one : stop) end = std::min(end, text.find(one));
  return text.substr(0, end);
}

}  // namespace dslaunch
