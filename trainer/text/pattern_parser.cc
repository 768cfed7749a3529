#include "trainer/text/pattern_parser.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/text/sanitize.h"
#include "trainer/base/train_error.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxBytes = 16 << 10;
constexpr int kMaxDepth = 32;
constexpr uint32_t kMaxCount = 1000;
constexpr char32_t kEnd = 0xFFFFFFFF;

using Kind = PatternNode::Kind;

// Returns the property bits that \p{..} names; 0 if the name is unknown.
uint16_t PropertyNamed(std::string_view name) {
  constexpr std::pair<std::string_view, uint16_t> kProperties[] = {
      {"L", kLetter},          {"Lu", kUpperLetter}, {"Ll", kLowerLetter}, {"Lt", kTitleLetter},
      {"Lm", kModifierLetter}, {"Lo", kOtherLetter}, {"M", kMark},         {"N", kNumber},
      {"P", kPunctuation},     {"S", kSymbol}};
  for (const auto& [known, bits] : kProperties) {
    if (known == name) return bits;
  }
  return 0;
}

PatternNode NodeOf(Kind kind) {
  PatternNode node;
  node.kind = kind;
  return node;
}

bool IsAsciiLetter(char32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool IsAsciiPunctuation(char32_t c) {
  return c > ' ' && c < 0x7F && !IsAsciiLetter(c) && !(c >= '0' && c <= '9');
}

class Parser {
 public:
  explicit Parser(std::string_view pattern) : pattern_(pattern) {
    if (pattern.size() > kMaxBytes) {
      Fail("has more than " + std::to_string(kMaxBytes) + " bytes");
    }
    if (const std::optional<size_t> bad = FindInvalidUtf8(pattern)) {
      at_ = *bad;
      Fail("has a byte that is not UTF-8");
    }
  }

  PatternNode Parse() {
    PatternNode node = Alternatives(0);
    if (Peek() != kEnd) Fail("has a ) without a (");
    return node;
  }

 private:
  [[noreturn]] void Fail(const std::string& problem) const {
    throw TrainError(ExitCode::kBadInput, "the pattern " + Quoted(pattern_) + " " + problem +
                                              ", at offset " + std::to_string(at_));
  }

  char32_t Peek() const { return at_ < pattern_.size() ? CodePointAt(pattern_, at_) : kEnd; }
  char32_t Next() {
    const char32_t c = Peek();
    if (c == kEnd) Fail("ends too early");
    at_ += Utf8Bytes(pattern_[at_]);
    return c;
  }
  bool Skip(std::string_view word) {
    if (!pattern_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  PatternNode Alternatives(int depth) {
    if (depth > kMaxDepth) Fail("has too many groups in groups");
    PatternNode alternatives = NodeOf(Kind::kAlternate);
    do alternatives.children.push_back(Sequence(depth));
    while (Skip("|"));
    return alternatives.children.size() == 1 ? std::move(alternatives.children[0])
                                             : std::move(alternatives);
  }

  PatternNode Sequence(int depth) {
    PatternNode sequence;
    char32_t last = 0;  // first character of the previous element; 0 at the beginning
    while (Peek() != kEnd && Peek() != '|' && Peek() != ')') {
      if (ignore_case_) RefuseLigature(last, Peek());
      last = Peek();
      sequence.children.push_back(Repeated(Atom(depth)));
    }
    return sequence;
  }

  // Throws for a pair that Oniguruma also matches with a single character, such as "st" with
  // U+FB06.
  void RefuseLigature(char32_t first, char32_t second) const {
    constexpr std::string_view kPairs[] = {"ff", "fi", "fl", "ss", "st"};
    if (first >= 0x80 || second >= 0x80) return;
    const char pair[] = {static_cast<char>(first | 0x20), static_cast<char>(second | 0x20)};
    if (std::ranges::find(kPairs, std::string_view(pair, 2)) != std::end(kPairs)) {
      Fail("has " + std::string(pair, 2) + " in a group without case, which is not supported");
    }
  }

  PatternNode Atom(int depth) {
    if (Skip("(?!")) return Lookahead(depth);
    if (Skip("(?i:")) {
      const bool before = std::exchange(ignore_case_, true);
      PatternNode group = Group(depth);
      ignore_case_ = before;
      return group;
    }
    if (Skip("(?:")) return Group(depth);
    if (pattern_.substr(at_).starts_with("(?")) Fail("has a group that is not supported");
    if (Skip("(")) return Group(depth);
    PatternNode node = NodeOf(Kind::kSet);
    if (Peek() == '[' || Peek() == '\\') {
      if (ignore_case_) Fail("has a class or an escape in a group without case");
      if (Skip("[")) {
        node.set = Class();
      } else {
        AddEscape(node.set);
      }
      node.set.Finish();
      return node;
    }
    AddPlain(node.set);
    node.set.Finish();
    return node;
  }

  PatternNode Group(int depth) {
    PatternNode node = Alternatives(depth + 1);
    if (!Skip(")")) Fail("has a ( without a )");
    return node;
  }

  PatternNode Lookahead(int depth) {
    PatternNode node = NodeOf(Kind::kNot);
    node.children.push_back(Group(depth));
    return node;
  }

  // Adds the pattern's next character, which is outside of classes, to `set`.
  void AddPlain(CharSet& set) {
    constexpr std::u32string_view kSpecial = U".^$*+?{}]";
    if (kSpecial.find(Peek()) != std::u32string_view::npos) {
      Fail("has a " + std::string(1, static_cast<char>(Peek())) + " that is not supported here");
    }
    if (ignore_case_ && Peek() >= 0x80) Fail("has a character above ASCII in a group without case");
    const char32_t c = Next();
    set.AddRange(c, c);
    if (!ignore_case_ || !IsAsciiLetter(c)) return;
    set.AddRange(c ^ 0x20, c ^ 0x20);
    constexpr char32_t kLongS = 0x17F;
    constexpr char32_t kKelvin = 0x212A;
    if ((c | 0x20) == 's') set.AddRange(kLongS, kLongS);
    if ((c | 0x20) == 'k') set.AddRange(kKelvin, kKelvin);
  }

  // Reads an escape and returns the character that it represents; nullopt if it represents a set.
  std::optional<char32_t> EscapedCharacter() {
    if (Skip("\\r")) return '\r';
    if (Skip("\\n")) return '\n';
    if (Skip("\\t")) return '\t';
    if (at_ + 1 < pattern_.size() && IsAsciiPunctuation(static_cast<uint8_t>(pattern_[at_ + 1]))) {
      ++at_;
      return Next();
    }
    return std::nullopt;
  }

  void AddEscape(CharSet& set) {
    if (const std::optional<char32_t> c = EscapedCharacter()) return set.AddRange(*c, *c);
    AddEscapedSet(set);
  }

  void AddEscapedSet(CharSet& set) {
    if (Skip("\\s")) return set.AddProperties(kWhiteSpace);
    if (Skip("\\S")) return set.AddAllWithout(kWhiteSpace);
    const bool inside = pattern_.substr(at_).starts_with("\\p{");
    if (!inside && !pattern_.substr(at_).starts_with("\\P{")) {
      Fail("has an escape that is not supported");
    }
    const size_t begin = at_ + 3;
    const size_t end = std::min(pattern_.find('}', begin), pattern_.size());
    const uint16_t bits = PropertyNamed(pattern_.substr(begin, end - begin));
    if (end == pattern_.size() || bits == 0) Fail("has a property that is not supported");
    at_ = end + 1;
    if (inside) return set.AddProperties(bits);
    set.AddAllWithout(bits);
  }

  // Reads a character class after its opening bracket.
  CharSet Class() {
    CharSet set;
    if (Skip("^")) set.Negate();
    for (bool first = true; first || Peek() != ']'; first = false) {
      if (Peek() == '[' || pattern_.substr(at_).starts_with("&&") || (first && Peek() == ']')) {
        Fail("has a class in a class, which is not supported");
      }
      std::optional<char32_t> from = Peek() == '\\' ? EscapedCharacter() : Next();
      if (!from) {
        AddEscapedSet(set);
        if (Peek() == '-') RefuseRange();
        continue;
      }
      if (Peek() != '-' || pattern_.substr(at_).starts_with("-]")) {
        set.AddRange(*from, *from);
        continue;
      }
      Next();
      if (Peek() == '[') RefuseRange();
      const std::optional<char32_t> to = Peek() == '\\' ? EscapedCharacter() : Next();
      if (!to || *to < *from) RefuseRange();
      set.AddRange(*from, *to);
    }
    Next();
    return set;
  }

  [[noreturn]] void RefuseRange() const { Fail("has a range of characters without an order"); }

  PatternNode Repeated(PatternNode node) {
    if (!Skip("?") && !Skip("*") && !Skip("+") && Peek() != '{') return node;
    PatternNode repeat = NodeOf(Kind::kRepeat);
    if (Peek() == '{') {
      ReadCounts(repeat);
    } else {
      const char quantifier = pattern_[at_ - 1];
      repeat.least = quantifier == '+' ? 1 : 0;
      repeat.most = quantifier == '?' ? 1 : PatternNode::kNoLimit;
      repeat.possessive = Skip("+");
    }
    if (Peek() == '?' || Peek() == '*' || Peek() == '+' || Peek() == '{') {
      Fail("has a quantifier after a quantifier that is not supported");
    }
    if (MayBeEmpty(node)) Fail("repeats what may be empty, which is not supported");
    repeat.children.push_back(std::move(node));
    return repeat;
  }

  // Reads a quantifier {m}, {m,} or {m,n} into `repeat`.
  void ReadCounts(PatternNode& repeat) {
    Skip("{");
    repeat.least = ReadCount();
    repeat.most = repeat.least;
    if (Skip(",")) repeat.most = Peek() == '}' ? PatternNode::kNoLimit : ReadCount();
    if (!Skip("}") || repeat.most < repeat.least || repeat.most == 0) {
      Fail("has a quantifier that is not {m}, {m,} or {m,n}");
    }
  }

  uint32_t ReadCount() {
    uint32_t count = 0;
    const size_t begin = at_;
    while (Peek() >= '0' && Peek() <= '9' && count <= kMaxCount) {
      count = count * 10 + (Next() - '0');
    }
    if (at_ == begin || count > kMaxCount) {
      Fail("has a quantifier without a number of at most " + std::to_string(kMaxCount));
    }
    return count;
  }

  std::string_view pattern_;
  size_t at_ = 0;
  bool ignore_case_ = false;
};

}  // namespace

PatternNode ParsePattern(std::string_view pattern) { return Parser(pattern).Parse(); }

bool MayBeEmpty(const PatternNode& node) {
  switch (node.kind) {
    case Kind::kSet:
      return false;
    case Kind::kSequence:
      return std::ranges::all_of(node.children, MayBeEmpty);
    case Kind::kAlternate:
      return std::ranges::any_of(node.children, MayBeEmpty);
    case Kind::kRepeat:
      return node.least == 0;
    case Kind::kNot:
      return true;
  }
  return true;
}

}  // namespace dslaunch
