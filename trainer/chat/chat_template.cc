#include "trainer/chat/chat_template.h"

#include <algorithm>
#include <string_view>

#include "base/text/sanitize.h"
#include "trainer/base/train_error.h"
#include "trainer/text/unicode.h"

namespace dslaunch {
namespace {

using Template = DataConfig::ChatTemplate;

constexpr std::string_view kUser = "user", kAssistant = "assistant", kSystem = "system";

// Returns `text` without white space at its beginning and end, like Python's str.strip.
std::string Strip(std::string_view text) {
  size_t begin = text.size(), end = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t next = at + Utf8Bytes(text[at]);
    if (!IsPythonSpace(CodePointAt(text, at))) {
      begin = std::min(begin, at);
      end = next;
    }
    at = next;
  }
  return begin < end ? std::string(text.substr(begin, end - begin)) : std::string();
}

void CheckRole(Template chat_template, const ChatMessage& message, size_t index,
               const std::string& place) {
  const std::string which =
      place + ": message " + std::to_string(index + 1) + " has the role " + Quoted(message.role);
  const bool known = message.role == kUser || message.role == kAssistant || message.role == kSystem;
  if (!known) RefuseInput(which + "; known: system, user and assistant");
  if (chat_template != Template::kMistral) return;
  if (message.role == kSystem) {
    RefuseInput(which +
                ", which the template mistral does not have; put it into the first message");
  }
  if ((message.role == kUser) != (index % 2 == 0)) {
    RefuseInput(which +
                ", but with the template mistral user and assistant take turns, user first");
  }
}

// The text around the content of a message.
struct Frame {
  std::string before;
  std::string end;  // text that ends the message and is part of an answer
  std::string after;
};

Frame FrameOf(Template chat_template, const std::string& role, const ChatTokenTexts& tokens) {
  switch (chat_template) {
    case Template::kNone:
      break;
    case Template::kChatml:
      return {"<|im_start|>" + role + "\n", AnswerEnd(chat_template, tokens), "\n"};
    case Template::kLlama3:
      return {"<|start_header_id|>" + role + "<|end_header_id|>\n\n",
              AnswerEnd(chat_template, tokens), ""};
    case Template::kMistral:
      if (role == kUser) return {"[INST] ", " [/INST]", ""};
      return {"", tokens.end, ""};
    case Template::kZephyr:
      return {"<|" + role + "|>\n", tokens.end, "\n"};
  }
  return {};
}

}  // namespace

std::string AnswerEnd(Template chat_template, const ChatTokenTexts& tokens) {
  if (chat_template == Template::kChatml) return "<|im_end|>";
  if (chat_template == Template::kLlama3) return "<|eot_id|>";
  return tokens.end;
}

bool BeginsWithToken(Template chat_template) {
  return chat_template == Template::kLlama3 || chat_template == Template::kMistral;
}

std::vector<ChatPart> RenderChat(Template chat_template, const std::vector<ChatMessage>& messages,
                                 const ChatTokenTexts& tokens, const std::string& place) {
  std::vector<ChatPart> parts;
  std::string text;  // text after the last answer
  if (BeginsWithToken(chat_template)) text = tokens.begin;
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    CheckRole(chat_template, message, i, place);
    const Frame frame = FrameOf(chat_template, message.role, tokens);
    std::string content =
        (chat_template == Template::kLlama3 ? Strip(message.content) : message.content) + frame.end;
    text += frame.before;
    if (message.role == kAssistant) {
      parts.push_back({std::move(text), std::move(content)});
      text = frame.after;
    } else {
      text += content + frame.after;
    }
  }
  if (!text.empty()) parts.push_back({std::move(text), ""});
  return parts;
}

}  // namespace dslaunch
