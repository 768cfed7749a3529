#include "trainer/chat/chat_encoder.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text/sanitize.h"
#include "trainer/base/no_target.h"
#include "trainer/base/train_error.h"
#include "trainer/config/json/json_object.h"
#include "trainer/text/end_token.h"
#include "trainer/text/json_lines.h"

namespace dslaunch {
namespace {

using nlohmann::json;

std::vector<ChatMessage> ReadMessages(const json& list, const std::string& place) {
  if (!list.is_array() || list.empty()) {
    RefuseInput(place + ": messages is not a list with at least one message");
  }
  std::vector<ChatMessage> messages;
  for (const json& item : list) {
    const std::string which = place + ": message " + std::to_string(messages.size() + 1);
    if (!item.is_object()) RefuseInput(which + " is not an object, {\"role\", \"content\"}");
    messages.push_back({TextUnder("role", item, which), TextUnder("content", item, which)});
  }
  return messages;
}

std::vector<int64_t> ReadNumbers(const char* key, const json& object, int64_t vocab_size,
                                 bool may_be_none, const std::string& place) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array()) {
    RefuseInput(place + " has no list under the key \"" + key + "\"");
  }
  std::vector<int64_t> numbers;
  numbers.reserve(found->size());
  for (const json& item : *found) {
    const bool whole = item.is_number_integer();
    const bool is_token = whole && item >= 0 && item < vocab_size;
    if (!is_token && !(may_be_none && whole && item == kNoTarget)) {
      RefuseInput(place + ": " + key + "[" + std::to_string(numbers.size()) +
                  "] is not a token of the model, a number below " + std::to_string(vocab_size) +
                  (may_be_none ? ", or -100" : ""));
    }
    numbers.push_back(item.get<int64_t>());
  }
  return numbers;
}

}  // namespace

ChatTokenTexts ReadChatTokenTexts(const std::string& folder, const Tokenizer& tokenizer,
                                  DataConfig::ChatTemplate chat_template) {
  ChatTokenTexts texts;
  texts.end = tokenizer.Decode(std::vector<int32_t>{EndTokenOf(folder, tokenizer)});
  if (const std::optional<int32_t> begin = BeginTokenOf(folder, tokenizer)) {
    texts.begin = tokenizer.Decode(std::vector<int32_t>{*begin});
  } else if (BeginsWithToken(chat_template)) {
    RefuseInput(folder +
                "/tokenizer_config.json: names no bos_token, with which the texts of "
                "data.template begin");
  }
  return texts;
}

ChatEncoder::ChatEncoder(DataConfig::ChatTemplate chat_template, const Tokenizer* tokenizer,
                         ChatTokenTexts texts, int64_t vocab_size)
    : template_(chat_template), texts_(std::move(texts)), vocab_size_(vocab_size) {
  if (tokenizer == nullptr) return;
  encoder_.emplace(*tokenizer);
  before_ = tokenizer->before();
  if (template_ != DataConfig::ChatTemplate::kNone) CheckEndToken();
}

// Throws unless the tokenizer has the token that ends an answer. The parts of a conversation are
// encoded separately, and their tokens are equal to those of the whole text only if each part ends
// with an added token.
void ChatEncoder::CheckEndToken() {
  const std::string end = AnswerEnd(template_, texts_);
  std::vector<int32_t> alone;
  encoder_->Encode(end, alone);
  for (const char* const next : {"\na", "[INST] a", "<a"}) {
    std::vector<int32_t> expected = alone, whole;
    encoder_->Encode(next, expected, TextStart::kToken);
    encoder_->Encode(end + next, whole);
    if (alone.size() == 1 && whole == expected) continue;
    RefuseInput("data.tokenizer has no token " + Quoted(end) +
                ", which ends an answer with this data.template, or joins it with the text after "
                "it; take the tokenizer of a model that was trained with the template");
  }
}

ChatTokens ChatEncoder::Encode(const std::string& line, const std::string& place) {
  const json object = ParseJson(line, place, JsonComments::kRefuse);
  ChatTokens tokens;
  try {
    if (object.is_object() && object.contains("messages")) {
      tokens = EncodeMessages(object["messages"], place);
    } else if (object.is_object() && object.contains("prompt")) {
      tokens = EncodeCompletion(object, place);
    } else if (object.is_object() && object.contains("input_ids")) {
      return ReadIds(object, place);
    } else {
      RefuseInput(place +
                  ": is neither a conversation, {\"messages\"}, nor {\"prompt\", \"completion\"}, "
                  "nor {\"input_ids\", \"labels\"}");
    }
  } catch (const TrainError& error) {
    const std::string what = error.what();
    throw TrainError(error.code(), what.starts_with(place) ? what : place + ": " + what);
  }
  for (const int64_t id : tokens.ids) {
    if (id < vocab_size_) continue;
    RefuseInput(place + ": token " + std::to_string(id) + " is not below model.vocab_size, " +
                std::to_string(vocab_size_) + "; give the tokenizer of the model");
  }
  return tokens;
}

void ChatEncoder::CheckTokenizer(const std::string& place) const {
  if (!encoder_) {
    RefuseInput(place +
                ": has text, but data.tokenizer is missing; give the folder of the "
                "model's tokenizer.json");
  }
}

ChatTokens ChatEncoder::EncodeMessages(const json& messages, const std::string& place) {
  if (template_ == DataConfig::ChatTemplate::kNone) {
    RefuseInput(place +
                ": has messages, but data.template is missing; known: chatml, llama3, "
                "mistral and zephyr");
  }
  CheckTokenizer(place);
  ChatTokens tokens;
  for (const ChatPart& part : RenderChat(template_, ReadMessages(messages, place), texts_, place)) {
    Append(part, tokens);
  }
  return tokens;
}

ChatTokens ChatEncoder::EncodeCompletion(const json& line, const std::string& place) {
  CheckTokenizer(place);
  const std::string& prompt = TextUnder("prompt", line, place);
  const std::string& completion = TextUnder("completion", line, place);
  ChatTokens tokens;
  Append({prompt, completion + texts_.end}, tokens);
  tokens.ids.insert(tokens.ids.begin(), before_.begin(), before_.end());
  tokens.labels.insert(tokens.labels.begin(), before_.size(), kNoTarget);
  return tokens;
}

void ChatEncoder::Append(const ChatPart& part, ChatTokens& tokens) {
  const TextStart start = tokens.ids.empty() ? TextStart::kDocument : TextStart::kToken;
  std::vector<int32_t> given, all;
  if (!part.answer.empty()) encoder_->Encode(part.before, given, start);
  encoder_->Encode(part.before + part.answer, all, start);
  const auto answer = part.answer.empty() ? all.end() : std::ranges::mismatch(given, all).in2;
  tokens.ids.insert(tokens.ids.end(), all.begin(), all.end());
  tokens.labels.insert(tokens.labels.end(), static_cast<size_t>(answer - all.begin()), kNoTarget);
  tokens.labels.insert(tokens.labels.end(), answer, all.end());
}

ChatTokens ChatEncoder::ReadIds(const json& line, const std::string& place) const {
  ChatTokens tokens{ReadNumbers("input_ids", line, vocab_size_, false, place),
                    ReadNumbers("labels", line, vocab_size_, true, place)};
  if (tokens.ids.size() != tokens.labels.size()) {
    RefuseInput(place + ": has " + std::to_string(tokens.ids.size()) + " input_ids, but " +
                std::to_string(tokens.labels.size()) + " labels");
  }
  return tokens;
}

}  // namespace dslaunch
