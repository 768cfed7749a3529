// Implements the regular expressions of tokenizer.json, with the semantics of Oniguruma, which the
// tokenizers package uses. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/text/char_set.h"

namespace dslaunch {

struct PatternNode;

// A range of bytes [begin, end) of a text.
struct TextRange {
  size_t begin = 0;
  size_t end = 0;
  bool operator==(const TextRange&) const = default;
};

// A compiled pattern with a backtracking matcher. Const methods may be called from several threads.
class Pattern {
 public:
  // Compiles `pattern`. Accepts: characters, \r \n \t and escaped punctuation, \s \S, \p{..} and
  // \P{..} of L, Lu, Ll, Lt, Lm, Lo, M, N, P and S, classes with ranges and negation, groups (..),
  // (?:..) and (?i:..) (of ASCII characters), (?!..), alternatives, and the quantifiers ? * + (also
  // possessive: ?+ *+ ++), {m}, {m,} and {m,n}. Throws TrainError kBadInput, with the offset in
  // bytes, for everything else, and for a pattern that matches the empty string.
  explicit Pattern(std::string_view pattern);

  // Appends the matches in `text` to `matches`, leftmost first and without overlaps. Of several
  // matches at one position, earlier alternatives and longer repetitions are preferred.
  // Precondition: `text` is UTF-8. Throws kBadInput if matching needs too many steps for the size
  // of the text.
  void FindAll(std::string_view text, std::vector<TextRange>& matches) const;

 private:
  enum class Op : uint8_t {
    kSet,        // match one character of the set `a`
    kRepeatSet,  // match `least` to `most` characters of the set `a`, as many as possible
    kSplit,      // continue at `a`; if that fails, continue at `b`
    kJump,       // continue at `a`
    kNot,        // fail if the instructions up to kAccept match; else continue at `a`
    kAtomic,     // match up to kAccept without backtracking into it; continue at `a`
    kAccept,
  };
  struct Instruction {
    Op op = Op::kAccept;
    bool possessive = false;  // true if a kRepeatSet does not give back characters
    uint32_t a = 0;
    uint32_t b = 0;
    uint32_t least = 0;
    uint32_t most = 0;
    // ASCII characters with which the branch `a` of a kSplit can begin.
    std::array<uint64_t, 2> first{};
  };
  struct Attempt;

  void Compile(const PatternNode& node);
  void CompileAlternate(const PatternNode& node);
  void CompileRepeat(const PatternNode& node);
  size_t Emit(Op op);
  void CompileNested(Op op, const PatternNode& node);
  uint32_t End() const { return static_cast<uint32_t>(program_.size()); }

  std::optional<size_t> Run(Attempt& attempt, uint32_t start, size_t at) const;
  std::optional<size_t> RepeatSet(Attempt& attempt, uint32_t index, size_t at) const;
  bool BackTrack(Attempt& attempt, size_t base, uint32_t& index, size_t& at) const;

  std::string pattern_;  // source of the pattern, for error messages
  std::vector<Instruction> program_;
  std::vector<CharSet> sets_;
};

}  // namespace dslaunch
