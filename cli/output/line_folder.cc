#include "cli/output/line_folder.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/text/rank_list.h"

namespace dslaunch {
namespace {

constexpr size_t kBytesOfOne = 256;  // memory of a held line in addition to the bytes of its text
// Limit of the steps of a search; beyond it, lines are not merged.
constexpr size_t kMaxSteps = 200;

}  // namespace

void LineFolder::Add(TimePoint now, int rank, bool is_stderr, std::string_view tag,
                     std::string_view text, const Sink& sink) {
  Flush(now, sink);
  if (num_ranks_ <= 1 && held_.empty()) return sink({is_stderr, tag, {rank}, text});
  Chain& chain = chains_[rank];
  Held& held = HeldFor(now, chain, is_stderr, tag, text);
  Raise(held, chain.level() + 1);
  held.members.push_back({rank, chain.first + chain.held.size()});
  held_bytes_ += sizeof held.members[0];
  chain.held.push_back(&held);
  // Once all ranks have written a line, no rank can add itself to an earlier line, so the line is
  // output now.
  if (held.members.size() >= num_ranks_) Emit(held, sink);
  while (held_bytes_ > kMaxBytes) Emit(held_.front(), sink);
}

// Returns a held line with this text that may follow all lines of the rank, or a new line. Any
// valid line is correct. The search begins with the oldest, because levels mostly rise from one
// line with the same text to the next, so it usually finds that line.
LineFolder::Held& LineFolder::HeldFor(TimePoint now, const Chain& chain, bool is_stderr,
                                      std::string_view tag, std::string_view text) {
  Texts& texts = texts_[is_stderr];
  auto found = texts.find(text);
  if (found == texts.end()) found = texts.emplace(text, std::deque<Held*>()).first;
  std::deque<Held*>& same = found->second;
  const auto higher = std::ranges::partition_point(
      same, [&](const Held* held) { return held->level <= chain.level(); });
  if (higher != same.end()) return **higher;
  if (!same.empty() && CanFollow(chain, *same.back())) return *same.back();
  held_.push_back({{}, is_stderr, std::string(tag), {}, found, now});
  held_.back().self = std::prev(held_.end());
  held_bytes_ += kBytesOfOne + text.size();
  return *same.emplace_back(&held_.back());
}

// Returns whether `held` may be output after the newest line of the chain. Returns false if a short
// search cannot decide this.
bool LineFolder::CanFollow(const Chain& chain, Held& held) {
  if (chain.held.empty()) return true;
  const Held* const newest = chain.held.back();
  if (&held == newest) return false;
  ++searches_;
  std::vector<Held*> left = {&held};
  for (size_t steps = 0; !left.empty(); ++steps) {
    if (steps == kMaxSteps) return false;
    const Held& one = *left.back();
    left.pop_back();
    for (const Held::Member& member : one.members) {
      Held* const next = Next(member);
      if (next == newest) return false;
      if (next == nullptr || next->level >= newest->level) continue;
      if (std::exchange(next->seen, searches_) != searches_) left.push_back(next);
    }
  }
  return true;
}

// Returns the line after `member` in the chain of its rank; null if `member` is the last line of
// the chain.
LineFolder::Held* LineFolder::Next(const Held::Member& member) {
  const Chain& chain = chains_[member.rank];
  const size_t next = member.place + 1 - chain.first;
  return next < chain.held.size() ? chain.held[next] : nullptr;
}

void LineFolder::Raise(Held& held, uint64_t level) {
  if (held.level >= level) return;
  held.level = level;
  for (const Held::Member& member : held.members) {
    Held* const next = Next(member);
    if (next != nullptr) Raise(*next, level + 1);
  }
}

std::optional<LineFolder::TimePoint> LineFolder::FlushDue() const {
  if (held_.empty()) return std::nullopt;
  return held_.front().since + kWindow;
}

void LineFolder::Flush(TimePoint now, const Sink& sink) {
  while (!held_.empty() && now >= *FlushDue()) Emit(held_.front(), sink);
}

void LineFolder::Finish(const Sink& sink) {
  while (!held_.empty()) Emit(held_.front(), sink);
}

// Outputs all lines that must precede `held`, then `held`.
void LineFolder::Emit(Held& held, const Sink& sink) {
  Line line = {held.is_stderr, held.tag, {}, held.text->first};
  for (const Held::Member& member : held.members) {
    Chain& chain = chains_[member.rank];
    while (chain.held.front() != &held) Emit(*chain.held.front(), sink);
    line.ranks.push_back(member.rank);
  }
  std::ranges::sort(line.ranks);
  sink(line);
  for (const Held::Member& member : held.members) {
    Chain& chain = chains_[member.rank];
    chain.held.pop_front();
    ++chain.first;
  }
  held_bytes_ -= kBytesOfOne + line.text.size() + held.members.size() * sizeof held.members[0];
  std::deque<Held*>& same = held.text->second;
  same.erase(std::ranges::find(same, &held));
  if (same.empty()) texts_[held.is_stderr].erase(held.text);
  held_.erase(held.self);
}

std::string FoldedTag(const std::vector<int>& ranks) {
  return "[x" + std::to_string(ranks.size()) + " ranks: " + RankRanges(ranks, ",") + "] ";
}

}  // namespace dslaunch
