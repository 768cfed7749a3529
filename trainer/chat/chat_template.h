// Renders conversations as text, with the templates of published models. Pure.
#pragma once

#include <string>
#include <vector>

#include "trainer/config/data_config.h"

namespace dslaunch {

struct ChatMessage {
  std::string role;
  std::string content;
};

// A part of a conversation's text: the text before an answer of the assistant, and the answer with
// the token that ends it. The last part may have an empty answer.
struct ChatPart {
  std::string before;
  std::string answer;
};

// The special tokens of a tokenizer as texts.
struct ChatTokenTexts {
  std::string begin;  // text of the bos token; empty without a bos token
  std::string end;    // text of the eos token
};

// Returns the text of the token that ends an answer. Precondition: the template is not kNone.
std::string AnswerEnd(DataConfig::ChatTemplate chat_template, const ChatTokenTexts& tokens);
// Returns whether texts of the template begin with the bos token.
bool BeginsWithToken(DataConfig::ChatTemplate chat_template);

// Returns the text that apply_chat_template of transformers makes with the template of the same
// name. The template mistral is from Mistral-7B-Instruct-v0.2, and zephyr is from zephyr-7b-beta.
// Precondition: the template is not kNone. Throws TrainError kBadInput, with a message that begins
// with `place`, for roles that the template rejects or omits.
std::vector<ChatPart> RenderChat(DataConfig::ChatTemplate chat_template,
                                 const std::vector<ChatMessage>& messages,
                                 const ChatTokenTexts& tokens, const std::string& place);

}  // namespace dslaunch
