#include "trainer/text/pre_tokenizer.h"

#include <algorithm>
#include <string_view>

#include "trainer/text/unicode.h"

namespace dslaunch {
namespace {

struct Chunk {
  TextRange range;
  bool is_match = false;
};

// Returns the chunks into which `matches` divide `word`. Positions of matches count from the
// beginning of the word. If `invert`, the text between matches counts as matches.
std::vector<Chunk> ChunksOf(const std::vector<TextRange>& matches, TextRange word, bool invert) {
  std::vector<Chunk> chunks;
  size_t done = word.begin;
  for (const TextRange& match : matches) {
    const TextRange found = {word.begin + match.begin, word.begin + match.end};
    if (found.begin > done) chunks.push_back({{done, found.begin}, invert});
    chunks.push_back({found, !invert});
    done = found.end;
  }
  if (done < word.end) chunks.push_back({{done, word.end}, invert});
  return chunks;
}

// Appends the ranges of the chunks to `out`. Each match is joined with the chunk before it, unless
// that chunk is a match too.
void MergeWithPrevious(const std::vector<Chunk>& chunks, std::vector<TextRange>& out) {
  bool after_match = false;
  bool first = true;
  for (const Chunk& chunk : chunks) {
    if (chunk.is_match && !after_match && !first) {
      out.back().end = chunk.range.end;
    } else {
      out.push_back(chunk.range);
    }
    after_match = chunk.is_match;
    first = false;
  }
}

void MergeWithNext(const std::vector<Chunk>& chunks, std::vector<TextRange>& out) {
  const size_t begin = out.size();
  bool before_match = false;
  for (size_t i = chunks.size(); i-- > 0;) {
    const Chunk& chunk = chunks[i];
    if (chunk.is_match && !before_match && out.size() > begin) {
      out.back().begin = chunk.range.begin;
    } else {
      out.push_back(chunk.range);
    }
    before_match = chunk.is_match;
  }
  std::reverse(out.begin() + static_cast<std::ptrdiff_t>(begin), out.end());
}

void AddChunks(const std::vector<Chunk>& chunks, SplitBehavior behavior,
               std::vector<TextRange>& out) {
  if (behavior == SplitBehavior::kMergedWithPrevious) return MergeWithPrevious(chunks, out);
  if (behavior == SplitBehavior::kMergedWithNext) return MergeWithNext(chunks, out);
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (behavior == SplitBehavior::kRemoved && chunks[i].is_match) continue;
    if (behavior == SplitBehavior::kContiguous && i > 0 &&
        chunks[i].is_match == chunks[i - 1].is_match) {
      out.back().end = chunks[i].range.end;
    } else {
      out.push_back(chunks[i].range);
    }
  }
}

// Divides each word at the matches that `find` appends to its list. Positions of matches count from
// the beginning of the word.
template <class Find>
void Divide(const Find& find, SplitBehavior behavior, bool invert, Words& words) {
  std::vector<TextRange> out;
  std::vector<TextRange> matches;
  for (const TextRange& word : words.ranges) {
    matches.clear();
    find(std::string_view(words.text).substr(word.begin, word.end - word.begin), matches);
    AddChunks(ChunksOf(matches, word, invert), behavior, out);
  }
  words.ranges = std::move(out);
}

void FindDigits(std::string_view text, std::vector<TextRange>& matches) {
  for (size_t at = 0; at < text.size(); at += Utf8Bytes(text[at])) {
    if ((PropertiesOf(CodePointAt(text, at)) & kDigit) != 0) {
      matches.push_back({at, at + Utf8Bytes(text[at])});
    }
  }
}

// Replaces the text by the concatenation of changed(word) for all words, which become its words.
template <class Change>
void Rewrite(const Change& changed, Words& words) {
  std::string text;
  for (TextRange& word : words.ranges) {
    const size_t begin = text.size();
    text += changed(word);
    word = {begin, text.size()};
  }
  words.text = std::move(text);
}

bool Continues(const TextRange& word, TextStart start) {
  return start == TextStart::kContinued && word.begin == 0;
}

void Apply(const SplitStep& step, TextStart /*start*/, Words& words) {
  Divide(
      [&](std::string_view text, std::vector<TextRange>& out) { step.search.FindAll(text, out); },
      step.behavior, step.invert, words);
}

void Apply(const DigitsStep& step, TextStart /*start*/, Words& words) {
  Divide(FindDigits, step.individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous,
         /*invert=*/false, words);
}

void Apply(const MetaspaceStep& step, TextStart start, Words& words) {
  const Search space(" ");
  Rewrite(
      [&](const TextRange& word) {
        std::string text =
            space.Replace(std::string_view(words.text).substr(word.begin, word.end - word.begin),
                          step.replacement);
        const bool prepend = step.prepend == PrependScheme::kAlways ||
                             (step.prepend == PrependScheme::kFirst &&
                              start == TextStart::kDocument && word.begin == 0);
        if (prepend && !Continues(word, start) && !text.starts_with(step.replacement))
          text.insert(0, step.replacement);
        return text;
      },
      words);
  if (!step.split) return;
  const Search search(step.replacement);
  Divide([&](std::string_view text, std::vector<TextRange>& out) { search.FindAll(text, out); },
         SplitBehavior::kMergedWithNext, /*invert=*/false, words);
}

void Apply(const ByteLevelStep& step, TextStart start, Words& words) {
  if (step.add_prefix_space) {
    Rewrite(
        [&](const TextRange& word) {
          std::string text = words.text.substr(word.begin, word.end - word.begin);
          return Continues(word, start) || text.starts_with(' ') ? text : " " + text;
        },
        words);
  }
  if (!step.pattern) return;
  Divide(
      [&](std::string_view text, std::vector<TextRange>& out) { step.pattern->FindAll(text, out); },
      SplitBehavior::kIsolated, /*invert=*/false, words);
}

}  // namespace

void PreTokenize(const std::vector<PreTokenizerStep>& steps, TextStart start, Words& words) {
  for (const PreTokenizerStep& step : steps) {
    std::visit([&](const auto& one) { Apply(one, start, words); }, step);
  }
}

}  // namespace dslaunch
