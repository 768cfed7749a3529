// Reads the prompts that a language model continues, and finds where a continuation ends. Pure
// except for ForEachJsonLine and ReadPrompts, which read files.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "trainer/program/text.h"

namespace dslaunch {

// A text to continue.
struct TextPrompt {
  std::string text;
  std::vector<int64_t> tokens;
  uint64_t repetition = 0;  // number of equal texts earlier in the file
};

// Calls `use` with each line of a file of JSON lines; empty lines are skipped. `place` is "FILE:3".
// Throws kBadInput, naming file and line, if the file is missing, is not named .jsonl, .json or
// .ndjson, or a line is not a JSON object.
void ForEachJsonLine(
    const std::string& file,
    const std::function<void(const nlohmann::json& object, const std::string& place)>& use);

// Reads the lines {"prompt": "..."} of `file`. Throws kBadInput, naming file and line, for a prompt
// that is empty, has more than `positions` tokens, or has a token that is not below `vocab_size`.
std::vector<TextPrompt> ReadPrompts(const std::string& file, const TextCodec& codec,
                                    int64_t vocab_size, int64_t positions);
// Returns the prompt for `text`, with `repetition` 0. Throws kBadInput, with a message that begins
// with `place`, if `text` is not a valid prompt (ReadPrompts).
TextPrompt MakePrompt(const std::string& text, const TextCodec& codec, int64_t vocab_size,
                      int64_t positions, const std::string& place);

// Returns whether a string in `stop` occurs in the text of `tokens` after the first `given` tokens.
// Searches only the part that the last token can complete.
bool HasStopText(const TextCodec& codec, const std::vector<std::string>& stop,
                 const std::vector<int64_t>& tokens, size_t given);
// Returns `text` up to the first occurrence of a string in `stop`; all of `text` if none occurs.
std::string CutAtStop(const std::string& text, const std::vector<std::string>& stop);

}  // namespace dslaunch
