// Encodes lines of chat data as tokens, and marks the tokens that a model learns to generate.
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
  // The label of each id: the id itself if it is learned, else kNoTarget.
  std::vector<int64_t> labels;
};

// Encodes lines of chat data. A line has one of these forms:
//   {"messages": [{"role", "content"}]}: the answers of the assistant are learned, each with the
//     token that ends it; apply_chat_template of transformers gives the same tokens;
//   {"prompt", "completion"}: the completion and the eos token after it are learned;
//   {"input_ids", "labels"}: the label of an id is the id itself, or -100 if it is not learned;
//     other labels are allowed too.
// Other keys are ignored. A token that contains text of both a prompt and an answer is learned.
class ChatEncoder {
 public:
  // Makes an encoder. `tokenizer` may be null if lines have no texts, and must outlive this object.
  // `vocab_size` is the number of tokens of the model. Throws TrainError kBadInput if the tokenizer
  // lacks a token of the template, or joins such a token with the text after it.
  ChatEncoder(DataConfig::ChatTemplate chat_template, const Tokenizer* tokenizer,
              ChatTokenTexts texts, int64_t vocab_size);

  // Encodes a line. Error messages begin with `place`. Throws TrainError kBadInput if the line is
  // not valid. Used by one thread.
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
  std::vector<int32_t> before_;  // tokens before each prompt
  ChatTokenTexts texts_;
  int64_t vocab_size_;
};

// Returns the special tokens of a tokenizer's folder as texts. Throws TrainError kBadInput if the
// tokenizer has no eos token, or if the template begins with a bos token and the tokenizer has no
// such token.
ChatTokenTexts ReadChatTokenTexts(const std::string& folder, const Tokenizer& tokenizer,
                                  DataConfig::ChatTemplate chat_template);

}  // namespace dslaunch
