#include "trainer/program/evaluation_texts.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "trainer/base/format.h"
#include "trainer/base/train_error.h"
#include "trainer/program/prompts.h"
#include "trainer/text/json_lines.h"
#include "trainer/text/unicode.h"

namespace dslaunch {
namespace {

int64_t CountCharacters(std::string_view text) {
  int64_t count = 0;
  for (size_t at = 0; at < text.size(); at += Utf8Bytes(text[at])) ++count;
  return count;
}

// Returns the size of `text` without trailing white space.
size_t EndWithoutSpace(std::string_view text) {
  size_t end = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t next = at + Utf8Bytes(text[at]);
    if (!IsPythonSpace(CodePointAt(text, at))) end = next;
    at = next;
  }
  return end;
}

class TextsReader {
 public:
  TextsReader(const TextCodec& codec, int64_t vocab_size, int64_t positions, EvaluationTexts& texts)
      : codec_(codec), vocab_size_(vocab_size), positions_(positions), texts_(texts) {}

  void Add(const nlohmann::json& object, const std::string& place) {
    if (object.contains("query")) return AddQuestion(object, place);
    if (object.contains("text")) return AddDocument(TextUnder("text", object, place + ":"), place);
    RefuseInput(place +
                ": is neither a document, {\"text\"}, nor a question, {\"query\", "
                "\"choices\", \"gold\"}");
  }

 private:
  void AddDocument(const std::string& text, const std::string& place) {
    const std::vector<int64_t> tokens = TokensOf(text, place);
    std::vector<ScoredTokens> windows = RollingWindows(tokens, PrefixToken(), positions_);
    texts_.documents.push_back({.first = texts_.sequences.size(),
                                .count = windows.size(),
                                .words = CountWords(text),
                                .bytes = static_cast<int64_t>(text.size()),
                                .tokens = static_cast<int64_t>(tokens.size())});
    std::ranges::move(windows, std::back_inserter(texts_.sequences));
  }

  void AddQuestion(const nlohmann::json& object, const std::string& place) {
    const std::string& query = TextUnder("query", object, place + ":");
    const auto choices = object.find("choices"), gold = object.find("gold");
    if (choices == object.end() || !choices->is_array() || choices->empty()) {
      RefuseInput(place + ": has no list under the key \"choices\"");
    }
    if (gold == object.end() || !gold->is_number_integer() || *gold < 0 ||
        *gold >= choices->size()) {
      RefuseInput(place + ": gold is not the number of a choice, counted from 0");
    }
    EvaluationTexts::Question question;
    question.first = texts_.sequences.size();
    question.gold = gold->get<size_t>();
    for (const nlohmann::json& choice : *choices) {
      if (!choice.is_string() || choice.get_ref<const std::string&>().empty()) {
        RefuseInput(place + ": a choice is not a text or is empty");
      }
      const auto text = choice.get<std::string>();
      texts_.sequences.push_back(Continued(query, " " + text, place));
      question.characters.push_back(CountCharacters(text));
      question.bytes.push_back(static_cast<int64_t>(text.size()));
    }
    texts_.questions.push_back(std::move(question));
  }

  // Returns the tokens of a query and a choice, of which the choice's tokens are scored. Tokens of
  // words begin with white space, so white space at the end of the query is moved to the choice.
  ScoredTokens Continued(const std::string& query, const std::string& choice,
                         const std::string& place) {
    const size_t end = EndWithoutSpace(query);
    std::vector<int64_t> all;
    size_t given = 0;
    if (end == 0) {
      all = codec_.TokensOf(query + choice);
      const int64_t prefix = PrefixToken();
      if (all.empty() || all.front() != prefix) all.insert(all.begin(), prefix);
      given = 1;
      CheckTokens(all, vocab_size_, place + ": the text");
    } else {
      all = TokensOf(query + choice, place);
      given = TokensOf(query.substr(0, end), place).size();
    }
    if (given == 0 || all.size() <= given)
      RefuseInput(place + ": a choice has no tokens of its own");
    const auto scored = static_cast<int64_t>(all.size() - given);
    if (scored > positions_) {
      RefuseInput(place + ": a choice has " + std::to_string(scored) +
                  " tokens, more than the model takes, " + std::to_string(positions_));
    }
    const auto most = static_cast<size_t>(positions_) + 1;
    if (all.size() > most) all.erase(all.begin(), all.end() - static_cast<std::ptrdiff_t>(most));
    return {std::move(all), scored};
  }

  // Returns the token that precedes a text. The codec reads a file to find this token, so it is
  // cached.
  int64_t PrefixToken() {
    if (!prefix_) prefix_ = codec_.PrefixToken();
    return *prefix_;
  }

  // Returns the tokens of `text`. Prepends the tokens that the model expects before a text, unless
  // `text` already begins with the prefix token. Throws TrainError, with a message that begins with
  // `place`, if `text` cannot be encoded or has a token outside of the model's vocabulary.
  std::vector<int64_t> TokensOf(const std::string& text, const std::string& place) {
    std::vector<int64_t> tokens;
    if (!text.starts_with(codec_.TextOf({PrefixToken()}, /*skip_special=*/false))) {
      tokens = codec_.before();
    }
    try {
      const std::vector<int64_t> own = codec_.TokensOf(text);
      tokens.insert(tokens.end(), own.begin(), own.end());
    } catch (const TrainError& error) {
      throw TrainError(error.code(), place + ": " + error.what());
    }
    CheckTokens(tokens, vocab_size_, place + ": the text");
    return tokens;
  }

  const TextCodec& codec_;
  const int64_t vocab_size_;
  const int64_t positions_;
  EvaluationTexts& texts_;
  std::optional<int64_t> prefix_;
};

// Returns whether the correct choice has the largest log-likelihood; if `lengths` is not null, the
// largest log-likelihood divided by its length. Of equal choices, the first counts as the largest.
bool IsRight(const EvaluationTexts::Question& question, std::span<const double> log_likelihoods,
             const std::vector<int64_t>* lengths) {
  size_t best = 0;
  const auto value = [&](size_t i) {
    return lengths == nullptr ? log_likelihoods[i]
                              : log_likelihoods[i] / static_cast<double>((*lengths)[i]);
  };
  for (size_t i = 1; i < log_likelihoods.size(); ++i) {
    if (value(i) > value(best)) best = i;
  }
  return best == question.gold;
}

void AddQuestionResults(const EvaluationTexts& texts, std::span<const double> log_likelihoods,
                        EvaluationResults& results) {
  double right = 0, by_characters = 0, by_bytes = 0;
  for (const EvaluationTexts::Question& question : texts.questions) {
    const auto own = log_likelihoods.subspan(question.first, question.bytes.size());
    right += IsRight(question, own, nullptr);
    by_characters += IsRight(question, own, &question.characters);
    by_bytes += IsRight(question, own, &question.bytes);
  }
  const auto count = static_cast<double>(texts.questions.size());
  results.insert(results.end(), {{"acc", right / count},
                                 {"acc_norm", by_characters / count},
                                 {"acc_bytes", by_bytes / count},
                                 {"questions", count}});
}

void AddDocumentResults(const EvaluationTexts& texts, std::span<const double> log_likelihoods,
                        EvaluationResults& results) {
  double nll = 0, words = 0, bytes = 0, tokens = 0;
  for (const EvaluationTexts::Document& document : texts.documents) {
    for (const double part : log_likelihoods.subspan(document.first, document.count)) nll -= part;
    words += static_cast<double>(document.words);
    bytes += static_cast<double>(document.bytes);
    tokens += static_cast<double>(document.tokens);
  }
  results.insert(results.end(), {{"nll", nll},
                                 {"tokens", tokens},
                                 {"documents", static_cast<double>(texts.documents.size())},
                                 {"perplexity", std::exp(nll / tokens)},
                                 {"word_perplexity", std::exp(nll / words)},
                                 {"byte_perplexity", std::exp(nll / bytes)},
                                 {"bits_per_byte", nll / bytes / std::log(2.0)}});
}

double ResultNamed(const EvaluationResults& results, const std::string& name) {
  const auto found = std::ranges::find(results, name, &EvaluationResults::value_type::first);
  return found == results.end() ? std::nan("") : found->second;
}

}  // namespace

void AddEvaluationText(const nlohmann::json& object, const std::string& place,
                       const TextCodec& codec, int64_t vocab_size, int64_t positions,
                       EvaluationTexts& texts) {
  TextsReader(codec, vocab_size, positions, texts).Add(object, place);
}

EvaluationTexts ReadEvaluationTexts(const std::string& file, const TextCodec& codec,
                                    int64_t vocab_size, int64_t positions) {
  EvaluationTexts texts;
  TextsReader reader(codec, vocab_size, positions, texts);
  ForEachJsonLine(file, [&](const nlohmann::json& object, const std::string& place) {
    reader.Add(object, place);
  });
  if (texts.sequences.empty()) RefuseInput(file + ": has no text to evaluate on");
  return texts;
}

std::vector<ScoredTokens> RollingWindows(const std::vector<int64_t>& tokens, int64_t prefix,
                                         int64_t positions) {
  std::vector<int64_t> all = {prefix};
  all.insert(all.end(), tokens.begin(), tokens.end());
  const auto size = static_cast<int64_t>(tokens.size());
  std::vector<ScoredTokens> windows;
  for (int64_t done = 0; done < size;) {
    const int64_t scored = std::min(positions, size - done);
    done += scored;
    const int64_t begin = std::max<int64_t>(0, done - positions);
    windows.push_back({{all.begin() + begin, all.begin() + done + 1}, scored});
  }
  return windows;
}

int64_t CountWords(std::string_view text) {
  int64_t spaces = 0;  // number of runs of white space in the text
  bool in_space = false;
  for (size_t at = 0; at < text.size(); at += Utf8Bytes(text[at])) {
    const bool is_space = IsPythonSpace(CodePointAt(text, at));
    if (is_space && !in_space) ++spaces;
    in_space = is_space;
  }
  return spaces + 1;
}

EvaluationResults ResultsOfTexts(const EvaluationTexts& texts,
                                 const std::vector<double>& log_likelihoods) {
  EvaluationResults results;
  if (!texts.questions.empty()) AddQuestionResults(texts, log_likelihoods, results);
  if (!texts.documents.empty()) AddDocumentResults(texts, log_likelihoods, results);
  return results;
}

std::string TextsLine(const std::string& prefix, const EvaluationTexts& texts,
                      const EvaluationResults& results) {
  const auto of = [&](const char* name) { return ResultNamed(results, name); };
  std::string line = prefix + " ";
  if (!texts.questions.empty()) {
    const double count = of("questions");
    line += Format("acc %.2f%% (%.0f of %.0f), acc_norm %.2f%%, acc_bytes %.2f%%", 100 * of("acc"),
                   of("acc") * count, count, 100 * of("acc_norm"), 100 * of("acc_bytes"));
    if (!texts.documents.empty()) line += "; ";
  }
  if (!texts.documents.empty()) {
    line += Format(
        "word_perplexity %.6g, byte_perplexity %.6g, bits_per_byte %.6g, perplexity %.6g (nll "
        "%.4f of %.0f tokens in %.0f %s)",
        of("word_perplexity"), of("byte_perplexity"), of("bits_per_byte"), of("perplexity"),
        of("nll"), of("tokens"), of("documents"), of("documents") == 1 ? "document" : "documents");
  }
  return line;
}

}  // namespace dslaunch
