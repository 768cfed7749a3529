#include "trainer/text/pattern.h"

#include <algorithm>

#include "base/text/sanitize.h"
#include "trainer/base/train_error.h"
#include "trainer/text/pattern_parser.h"

namespace dslaunch {
namespace {

using Kind = PatternNode::Kind;

constexpr size_t kMaxInstructions = 1 << 14;
// FindAll stops with an error after kSteps steps, plus kStepsPerByte steps for each byte of the
// text.
constexpr uint64_t kSteps = 1 << 12;
constexpr uint64_t kStepsPerByte = 256;
constexpr std::array<uint64_t, 2> kAllAscii = {~uint64_t{0}, ~uint64_t{0}};

// A state to which a failed match backtracks. If `at` is above `least`, the instruction before
// `next` is a kRepeatSet that can give back a character.
struct Choice {
  uint32_t next;
  size_t at;
  size_t least;
};

size_t PreviousCharacter(std::string_view text, size_t at) {
  do --at;
  while ((static_cast<uint8_t>(text[at]) & 0xC0) == 0x80);
  return at;
}

bool HasBit(const std::array<uint64_t, 2>& bits, uint8_t ascii) {
  return (bits[ascii / 64] >> ascii % 64 & 1) != 0;
}

std::array<uint64_t, 2> Union(std::array<uint64_t, 2> a, const std::array<uint64_t, 2>& b) {
  a[0] |= b[0];
  a[1] |= b[1];
  return a;
}

// Returns the ASCII characters with which a match of `node` can begin; all of them if the match can
// be empty.
std::array<uint64_t, 2> FirstAscii(const PatternNode& node) {
  if (MayBeEmpty(node)) return kAllAscii;
  std::array<uint64_t, 2> first{};
  switch (node.kind) {
    case Kind::kSet:
      for (uint8_t c = 0; c < 128; ++c) {
        if (node.set.Contains(c)) first[c / 64] |= uint64_t{1} << c % 64;
      }
      return first;
    case Kind::kSequence:
      for (const PatternNode& child : node.children) {
        if (child.kind == Kind::kRepeat && child.least == 0) {
          first = Union(first, FirstAscii(child.children[0]));
          continue;
        }
        return Union(first, FirstAscii(child));
      }
      return kAllAscii;
    case Kind::kAlternate:
      for (const PatternNode& child : node.children) first = Union(first, FirstAscii(child));
      return first;
    case Kind::kRepeat:
      return FirstAscii(node.children[0]);
    case Kind::kNot:
      return kAllAscii;
  }
  return kAllAscii;
}

}  // namespace

struct Pattern::Attempt {
  std::string_view text;
  std::vector<Choice>& choices;
  uint64_t steps = 0;
};

Pattern::Pattern(std::string_view pattern) : pattern_(pattern) {
  const PatternNode node = ParsePattern(pattern);
  if (MayBeEmpty(node)) {
    throw TrainError(ExitCode::kBadInput,
                     "the pattern " + Quoted(pattern) + " matches the empty string, at offset 0");
  }
  Compile(node);
  Emit(Op::kAccept);
}

size_t Pattern::Emit(Op op) {
  if (program_.size() == kMaxInstructions) {
    throw TrainError(ExitCode::kBadInput,
                     "the pattern " + Quoted(pattern_) + " repeats groups too often, at offset 0");
  }
  program_.push_back({.op = op});
  return program_.size() - 1;
}

void Pattern::Compile(const PatternNode& node) {
  switch (node.kind) {
    case Kind::kSet:
      program_[Emit(Op::kSet)].a = static_cast<uint32_t>(sets_.size());
      sets_.push_back(node.set);
      return;
    case Kind::kSequence:
      for (const PatternNode& child : node.children) Compile(child);
      return;
    case Kind::kAlternate:
      return CompileAlternate(node);
    case Kind::kRepeat:
      return CompileRepeat(node);
    case Kind::kNot:
      return CompileNested(Op::kNot, node.children[0]);
  }
}

void Pattern::CompileNested(Op op, const PatternNode& node) {
  const size_t start = Emit(op);
  Compile(node);
  Emit(Op::kAccept);
  program_[start].a = End();
}

void Pattern::CompileAlternate(const PatternNode& node) {
  std::vector<size_t> jumps;  // indices of the jumps to the end of the alternatives
  for (size_t i = 0; i + 1 < node.children.size(); ++i) {
    const size_t split = Emit(Op::kSplit);
    program_[split].first = FirstAscii(node.children[i]);
    program_[split].a = End();
    Compile(node.children[i]);
    jumps.push_back(Emit(Op::kJump));
    program_[split].b = End();
  }
  Compile(node.children.back());
  for (const size_t jump : jumps) program_[jump].a = End();
}

void Pattern::CompileRepeat(const PatternNode& node) {
  const PatternNode& child = node.children[0];
  if (child.kind == Kind::kSet) {
    Instruction& step = program_[Emit(Op::kRepeatSet)];
    step.possessive = node.possessive;
    step.a = static_cast<uint32_t>(sets_.size());
    step.least = node.least;
    step.most = node.most;
    sets_.push_back(child.set);
    return;
  }
  if (node.possessive) {
    PatternNode greedy = node;
    greedy.possessive = false;
    return CompileNested(Op::kAtomic, greedy);
  }
  for (uint32_t i = 0; i < node.least; ++i) Compile(child);
  // Indices of the splits whose second branch is the end of the repetition.
  std::vector<size_t> splits;
  const bool endless = node.most == PatternNode::kNoLimit;
  for (uint32_t i = node.least; i < (endless ? node.least + 1 : node.most); ++i) {
    splits.push_back(Emit(Op::kSplit));
    program_[splits.back()].first = FirstAscii(child);
    program_[splits.back()].a = End();
    Compile(child);
    if (endless) program_[Emit(Op::kJump)].a = static_cast<uint32_t>(splits.back());
  }
  for (const size_t split : splits) program_[split].b = End();
}

// Executes the kRepeatSet at `index`. Returns the position after the repetition, or nullopt if the
// set does not match often enough.
std::optional<size_t> Pattern::RepeatSet(Attempt& attempt, uint32_t index, size_t at) const {
  const Instruction& step = program_[index];
  const CharSet& set = sets_[step.a];
  const std::string_view text = attempt.text;
  size_t least_end = at;
  size_t end = at;
  uint32_t count = 0;
  while (count < step.most && end < text.size() && set.Contains(CodePointAt(text, end))) {
    end += Utf8Bytes(text[end]);
    if (++count == step.least) least_end = end;
  }
  attempt.steps += count;
  if (count < step.least) return std::nullopt;
  if (!step.possessive && end > least_end) {
    attempt.choices.push_back({index + 1, end, least_end});
  }
  return end;
}

// Backtracks to the newest choice above `base`, and sets `index` and `at` to its state. Returns
// false if there is no such choice.
bool Pattern::BackTrack(Attempt& attempt, size_t base, uint32_t& index, size_t& at) const {
  if (attempt.choices.size() == base) return false;
  Choice& last = attempt.choices.back();
  index = last.next;
  if (last.at > last.least) last.at = PreviousCharacter(attempt.text, last.at);
  at = last.at;
  if (last.at == last.least) attempt.choices.pop_back();
  return true;
}

// Matches the program from instruction `start` on at position `at`. Returns the end of the match;
// nullopt if the program does not match. The depth of recursion is the depth of groups in the
// pattern.
std::optional<size_t> Pattern::Run(Attempt& attempt, uint32_t start, size_t at) const {
  const std::string_view text = attempt.text;
  const size_t base = attempt.choices.size();
  const uint64_t most_steps = kSteps + kStepsPerByte * text.size();
  uint32_t index = start;
  for (;;) {
    if (++attempt.steps > most_steps) {
      throw TrainError(ExitCode::kBadInput,
                       "the pattern " + Quoted(pattern_) + " needs too many steps for this text");
    }
    const Instruction& step = program_[index];
    std::optional<size_t> end = at;  // end of the match; nullopt if the current branch fails
    switch (step.op) {
      case Op::kSet: {
        const bool found = at < text.size() && sets_[step.a].Contains(CodePointAt(text, at));
        end = found ? std::optional(at + Utf8Bytes(text[at])) : std::nullopt;
        ++index;
        break;
      }
      case Op::kRepeatSet:
        end = RepeatSet(attempt, index, at);
        ++index;
        break;
      case Op::kSplit: {
        const uint8_t next = at < text.size() ? static_cast<uint8_t>(text[at]) : uint8_t{0xFF};
        const bool possible = next >= 0x80 || HasBit(step.first, next);
        if (possible) attempt.choices.push_back({step.b, at, at});
        index = possible ? step.a : step.b;
        break;
      }
      case Op::kJump:
        index = step.a;
        break;
      case Op::kNot:
        if (Run(attempt, index + 1, at)) end.reset();
        index = step.a;
        break;
      case Op::kAtomic:
        end = Run(attempt, index + 1, at);
        index = step.a;
        break;
      case Op::kAccept:
        attempt.choices.resize(base);
        return at;
    }
    if (end) {
      at = *end;
    } else if (!BackTrack(attempt, base, index, at)) {
      return std::nullopt;
    }
  }
}

void Pattern::FindAll(std::string_view text, std::vector<TextRange>& matches) const {
  std::vector<Choice> choices;
  Attempt attempt{text, choices};
  for (size_t at = 0; at < text.size();) {
    if (const std::optional<size_t> end = Run(attempt, 0, at)) {
      matches.push_back({at, *end});
      at = *end;
    } else {
      at += Utf8Bytes(text[at]);
    }
  }
}

}  // namespace dslaunch
