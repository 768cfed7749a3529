// The file of run.eval_file: documents, whose perplexity is measured, and questions with choices.
// Tokens and results equal lm-eval 0.4.13 (EleutherAI's lm-evaluation-harness): HFLM.loglikelihood,
// loglikelihood_rolling, and the metrics of multiple_choice and loglikelihood_rolling. Pure except
// for ReadEvaluationTexts.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "proto/contract/status_line.h"
#include "trainer/program/text.h"

namespace dslaunch {

// Tokens of which the last `scored` are predicted from the tokens before them.
struct ScoredTokens {
  std::vector<int64_t> tokens;
  int64_t scored = 0;
};

struct EvaluationTexts {
  struct Document {
    size_t first = 0, count = 0;  // range of its parts in `sequences`
    int64_t words = 0, bytes = 0, tokens = 0;
  };
  struct Question {
    size_t first = 0;  // sequence of the first choice; the other choices follow
    std::vector<int64_t> characters, bytes;  // numbers of characters and bytes in each choice
    size_t gold = 0;                         // index of the right choice
  };
  std::vector<ScoredTokens> sequences;
  std::vector<Document> documents;
  std::vector<Question> questions;
};

// Adds a document or a question. Throws kBadInput, beginning with `place`.
void AddEvaluationText(const nlohmann::json& object, const std::string& place,
                       const TextCodec& codec, int64_t vocab_size, int64_t positions,
                       EvaluationTexts& texts);

// Reads JSON lines of documents, {"text": "..."}, and of questions, {"query": "...",
// "choices": ["...", ...], "gold": 0}. A choice follows its query after a space. A document that
// has more than `positions` tokens is cut into parts, and a query loses its beginning. Throws
// kBadInput, naming file and line.
EvaluationTexts ReadEvaluationTexts(const std::string& file, const TextCodec& codec,
                                    int64_t vocab_size, int64_t positions);

// Returns parts in which each of `tokens` is scored once: each part but the first begins before
// its scored tokens, so that the part has `positions` inputs if the document does.
std::vector<ScoredTokens> RollingWindows(const std::vector<int64_t>& tokens, int64_t prefix,
                                         int64_t positions);

// Returns the number of parts between white space, like len(re.split(r"\s+", text)) in Python.
int64_t CountWords(std::string_view text);

// Returns the results for the natural logarithms of the sequences' probabilities:
// of documents nll (the sum), tokens, perplexity (of a token), word_perplexity, byte_perplexity
// and bits_per_byte; of questions acc, acc_norm (the choice whose logarithm divided by its
// characters is the largest), acc_bytes (by its bytes) and questions.
EvaluationResults ResultsOfTexts(const EvaluationTexts& texts,
                                 const std::vector<double>& log_likelihoods);

// "test acc 45.00% (9 of 20), acc_norm 50.00%, acc_bytes 50.00%; word_perplexity 31.4, ..."
std::string TextsLine(const std::string& prefix, const EvaluationTexts& texts,
                      const EvaluationResults& results);

}  // namespace dslaunch
