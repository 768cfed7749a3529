// Reads the file of run.eval_file: documents, whose perplexity is measured, and questions with
// choices. Tokens and results are equal to those of lm-eval 0.4.13 (EleutherAI's
// lm-evaluation-harness): HFLM.loglikelihood, loglikelihood_rolling, and the metrics of
// multiple_choice and loglikelihood_rolling. Pure except for ReadEvaluationTexts.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "proto/contract/status_line.h"
#include "trainer/program/text.h"

namespace dslaunch {

// A sequence of tokens, of which the last `scored` tokens are predicted from the tokens before
// them.
struct ScoredTokens {
  std::vector<int64_t> tokens;
  int64_t scored = 0;
};

struct EvaluationTexts {
  struct Document {
    size_t first = 0, count = 0;  // range of the document's parts in `sequences`
    int64_t words = 0, bytes = 0, tokens = 0;
  };
  struct Question {
    size_t first = 0;  // index in `sequences` of the first choice, which the others follow
    std::vector<int64_t> characters, bytes;  // number of characters and of bytes of each choice
    size_t gold = 0;                         // index of the correct choice
  };
  std::vector<ScoredTokens> sequences;
  std::vector<Document> documents;
  std::vector<Question> questions;
};

// Adds the document or question in `object` to `texts`. Throws kBadInput, with a message that
// begins with `place`, if `object` is malformed.
void AddEvaluationText(const nlohmann::json& object, const std::string& place,
                       const TextCodec& codec, int64_t vocab_size, int64_t positions,
                       EvaluationTexts& texts);

// Reads a file of JSON lines. A line is a document, {"text": "..."}, or a question, {"query":
// "...", "choices": ["...", ...], "gold": 0}. A choice follows its query after a space. A document
// with more than `positions` tokens is divided into parts, and a query that is too long loses its
// beginning. Throws kBadInput, naming file and line, if a line is malformed.
EvaluationTexts ReadEvaluationTexts(const std::string& file, const TextCodec& codec,
                                    int64_t vocab_size, int64_t positions);

// Divides `tokens` into parts in which each token is scored once. Each part except the first begins
// before its scored tokens, so that it has `positions` inputs if the document has that many.
// `prefix` is the token that precedes the document.
std::vector<ScoredTokens> RollingWindows(const std::vector<int64_t>& tokens, int64_t prefix,
                                         int64_t positions);

// Returns the number of parts that white space separates, as len(re.split(r"\s+", text)) in Python.
int64_t CountWords(std::string_view text);

// Returns the metrics for `log_likelihoods`, the natural logarithms of the sequences'
// probabilities. For documents: nll (the sum), tokens, perplexity (of a token), word_perplexity,
// byte_perplexity and bits_per_byte. For questions: acc, acc_norm, acc_bytes and questions.
// acc_norm chooses by the logarithm divided by the choice's number of characters, acc_bytes by its
// number of bytes.
EvaluationResults ResultsOfTexts(const EvaluationTexts& texts,
                                 const std::vector<double>& log_likelihoods);

// Returns a line with the results: "test acc 45.00% (9 of 20), acc_norm 50.00%, acc_bytes 50.00%;
// word_perplexity 31.4, ..."
std::string TextsLine(const std::string& prefix, const EvaluationTexts& texts,
                      const EvaluationResults& results);

}  // namespace dslaunch
