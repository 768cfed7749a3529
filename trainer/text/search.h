// Searches a text for the word or pattern of a step of tokenizer.json.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "trainer/text/pattern.h"

namespace dslaunch {

// The kind of text that precedes a text to be divided into words.
enum class TextStart : uint8_t {
  kDocument,   // nothing, because the text begins a document
  kToken,      // an added token that was found in the document
  kContinued,  // the text of the previous call, which this text continues
};

class Search {
 public:
  // Makes a search for `word`. Precondition: `word` is not empty.
  explicit Search(std::string word) : wanted_(std::move(word)) {}
  explicit Search(Pattern pattern) : wanted_(std::move(pattern)) {}

  // Appends the matches in `text` to `matches`, leftmost first and without overlaps. Throws
  // kBadInput if a pattern needs too many steps for the size of the text.
  void FindAll(std::string_view text, std::vector<TextRange>& matches) const {
    if (const auto* pattern = std::get_if<Pattern>(&wanted_)) {
      pattern->FindAll(text, matches);
      return;
    }
    const std::string& word = std::get<std::string>(wanted_);
    for (size_t at = text.find(word); at != std::string_view::npos;
         at = text.find(word, at + word.size())) {
      matches.push_back({at, at + word.size()});
    }
  }

  // Returns `text` with `content` in place of each match.
  std::string Replace(std::string_view text, std::string_view content) const {
    std::vector<TextRange> matches;
    FindAll(text, matches);
    std::string replaced;
    size_t done = 0;
    for (const TextRange& match : matches) {
      replaced.append(text, done, match.begin - done).append(content);
      done = match.end;
    }
    return replaced.append(text, done);
  }

 private:
  std::variant<std::string, Pattern> wanted_;
};

}  // namespace dslaunch
