// Lines of chat data as tokens, and which of them a model learns to give.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/chat/chat_template.h"
#include "trainer/config/data_config.h"
#include "trainer/text/tokenizer.h"

namespace dslaunch {

struct ChatTokens {
  std::vector<int64_t> ids;
  std::vector<int64_t> labels;  // one for each id: that id, or kNoTarget if it is not learned
};

// A line is one of
//   {"messages": [{"role", "content"}]}: the answers of the assistant are learned, each with the
//     token that ends it; apply_chat_template of transformers gives the same tokens;
//   {"prompt", "completion"}: the completion and the eos token after it are learned;
//   {"input_ids", "labels"}: ids, and for each itself or -100; any other label is allowed too.
// Other keys are ignored. A token that has text of both a prompt and an answer is learned.
class ChatEncoder {
 public:
  // `tokenizer` may be null, and is needed for texts; it must outlive this. `vocab_size`: the
  // model's. Throws TrainError kBadInput if the tokenizer lacks a token of the template, or joins
  // it with the text after it.
  ChatEncoder(DataConfig::ChatTemplate chat_template, const Tokenizer* tokenizer,
              ChatTokenTexts texts, int64_t vocab_size);

  // Reads a line; `place` begins messages. Throws TrainError kBadInput if it is wrong. One thread.
  ChatTokens Encode(const std::string& line, const std::string& place);

 private:
  ChatTokens EncodeMessages(const nlohmann::json& messages, const std::string& place);
  ChatTokens EncodeCompletion(const nlohmann::json& line, const std::string& place);
  ChatTokens ReadIds(const nlohmann::json& line, const std::string& place) const;
  void Append(const ChatPart& part, ChatTokens& tokens);
  void CheckTokenizer(const std::string& place) const;
  void CheckEndToken();

  DataConfig::ChatTemplate template_;
  std::optional<TokenEncoder> encoder_;
  std::vector<int32_t> before_;  // tokens that precede each prompt
  ChatTokenTexts texts_;
  int64_t vocab_size_;
};

// Returns the texts of the special tokens in a tokenizer's folder. Throws as EndTokenOf, and
// kBadInput if the template begins with a bos token and there is none.
ChatTokenTexts ReadChatTokenTexts(const std::string& folder, const Tokenizer& tokenizer,
                                  DataConfig::ChatTemplate chat_template);

}  // namespace dslaunch
