#include "cli/line_folder.h"

#include <algorithm>

#include "cli/rank_list.h"

namespace dslaunch {
namespace {

constexpr size_t kBytesOfOne = 256;  // that a held line takes beside its text

}  // namespace

void LineFolder::Add(TimePoint now, int rank, bool is_stderr, std::string_view tag,
                     std::string_view text, const Sink& sink) {
  Flush(now, sink);
  if (num_ranks_ <= 1 && held_.empty()) return sink({is_stderr, tag, {rank}, text});
  const uint64_t number = NumberFor(now, rank, is_stderr, tag, text);
  At(number).ranks.push_back(rank);
  held_bytes_ += sizeof rank;
  newest_[rank] = number;
  while (!held_.empty() && (held_bytes_ > kMaxBytes || held_.front().ranks.size() >= num_ranks_)) {
    EmitFirst(sink);
  }
}

uint64_t LineFolder::NumberFor(TimePoint now, int rank, bool is_stderr, std::string_view tag,
                               std::string_view text) {
  Texts& texts = texts_[is_stderr];
  auto found = texts.find(text);
  if (found == texts.end()) found = texts.emplace(text, std::deque<uint64_t>()).first;
  std::deque<uint64_t>& numbers = found->second;
  const auto open = std::ranges::upper_bound(numbers, newest_[rank]);
  if (open != numbers.end()) return *open;
  held_.push_back({is_stderr, std::string(tag), {}, found, now});
  held_bytes_ += kBytesOfOne + text.size();
  return numbers.emplace_back(first_ + held_.size() - 1);
}

std::optional<LineFolder::TimePoint> LineFolder::FlushDue() const {
  if (held_.empty()) return std::nullopt;
  return held_.front().since + kWindow;
}

void LineFolder::Flush(TimePoint now, const Sink& sink) {
  while (!held_.empty() && now >= *FlushDue()) EmitFirst(sink);
}

void LineFolder::Finish(const Sink& sink) {
  while (!held_.empty()) EmitFirst(sink);
}

void LineFolder::EmitFirst(const Sink& sink) {
  Held held = std::move(held_.front());
  held_.pop_front();
  ++first_;
  const std::string& text = held.text->first;
  held_bytes_ -= kBytesOfOne + text.size() + held.ranks.size() * sizeof held.ranks[0];
  std::ranges::sort(held.ranks);
  sink({held.is_stderr, held.tag, std::move(held.ranks), text});
  held.text->second.pop_front();
  if (held.text->second.empty()) texts_[held.is_stderr].erase(held.text);
}

std::string FoldedTag(const std::vector<int>& ranks) {
  return "[x" + std::to_string(ranks.size()) + " ranks: " + RankRanges(ranks, ",") + "] ";
}

}  // namespace dslaunch
