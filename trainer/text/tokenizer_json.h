// Reads tokenizer.json, the file of the tokenizers package and of Hugging Face's models.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "trainer/text/added_tokens.h"
#include "trainer/text/bpe.h"
#include "trainer/text/decoder.h"
#include "trainer/text/normalizer.h"
#include "trainer/text/pre_tokenizer.h"

namespace dslaunch {

struct TokenizerParts {
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  std::vector<DecoderStep> decoder;
  std::vector<AddedToken> added_tokens;
  std::vector<int32_t> before;  // the tokens that TemplateProcessing puts before a text
  std::vector<int32_t> after;   // the tokens that it puts after a text
  std::unordered_map<std::string, int32_t> ids;  // all tokens, keyed by their text in the file
  int64_t vocab_size = 0;                        // largest id + 1
  std::vector<BpeMerge> merges;
  BpeOptions bpe;
};

// Throws TrainError kBadInput, naming `source` and the key, for a file that is malformed or needs
// something that dslaunch does not have: models other than BPE, other steps or options; and for ids
// of which most are unused. Truncation and padding are ignored.
TokenizerParts ReadTokenizerJson(const nlohmann::json& json, const std::string& source);

}  // namespace dslaunch
