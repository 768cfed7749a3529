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
  std::vector<int32_t> before;  // tokens that TemplateProcessing adds before a text
  std::vector<int32_t> after;   // tokens that TemplateProcessing adds after a text
  std::unordered_map<std::string, int32_t> ids;  // ids of tokens by their text in the file
  int64_t vocab_size = 0;                        // largest id plus 1
  std::vector<BpeMerge> merges;
  BpeOptions bpe;
};

// Parses tokenizer.json. Ignores truncation and padding. Throws TrainError kBadInput, naming
// `source` and the key, if the file is malformed, if it needs models other than BPE or unknown
// steps or options, or if most ids are unused.
TokenizerParts ReadTokenizerJson(const nlohmann::json& json, const std::string& source);

}  // namespace dslaunch
