// Conversations as text, by the templates that models are published with. Pure.
#pragma once

#include <string>
#include <vector>

#include "trainer/config/data_config.h"

namespace dslaunch {

struct ChatMessage {
  std::string role;
  std::string content;
};

// A part of a conversation's text: what precedes an answer of the assistant, and the answer with
// the token that ends it. The last part may have no answer.
struct ChatPart {
  std::string before;
  std::string answer;
};

// The special tokens of a tokenizer, as text.
struct ChatTokenTexts {
  std::string begin;  // bos; empty: none
  std::string end;    // eos
};

// Returns the text of the token that ends an answer. Precondition: not kNone.
std::string AnswerEnd(DataConfig::ChatTemplate chat_template, const ChatTokenTexts& tokens);
// Returns whether texts begin with the bos token.
bool BeginsWithToken(DataConfig::ChatTemplate chat_template);

// Returns the text that apply_chat_template of transformers makes with the template of that name:
// mistral is the template of Mistral-7B-Instruct-v0.2, zephyr the one of zephyr-7b-beta.
// Precondition: not kNone. Throws TrainError kBadInput, beginning with `place`, for roles that the
// template refuses or leaves out.
std::vector<ChatPart> RenderChat(DataConfig::ChatTemplate chat_template,
                                 const std::vector<ChatMessage>& messages,
                                 const ChatTokenTexts& tokens, const std::string& place);

}  // namespace dslaunch
