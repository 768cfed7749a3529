#include "cli/output/screen_lines.h"

#include <algorithm>
#include <utility>

#include "proto/contract/line_assembler.h"

namespace dslaunch {
namespace {

constexpr size_t kMostRows = 64;          // limit of the rows that a stream may redraw
constexpr size_t kMaxSequenceBytes = 16;  // longest supported control sequence
constexpr char kEscape = '\x1b';

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

bool IsBlank(std::string_view text) { return text.find_first_not_of(" \t") == text.npos; }

}  // namespace

void ScreenLines::Append(std::string_view bytes, TimePoint now, const Sink& sink) {
  std::string joined;
  if (!sequence_.empty()) {
    joined = std::move(sequence_).append(bytes);
    sequence_.clear();
    bytes = joined;
  }
  while (!bytes.empty()) {
    const size_t plain = std::min(bytes.find_first_of("\n\r\b\x1b"), bytes.size());
    if (plain > 0) Put(bytes.substr(0, plain), now, sink);
    bytes.remove_prefix(plain);
    if (bytes.empty()) return;
    if (bytes.front() == kEscape) {
      const std::optional<size_t> size = Control(bytes);
      if (!size) {
        sequence_ = bytes;
        return;
      }
      if (*size == 0) Put(bytes.substr(0, 1), now, sink);
      bytes.remove_prefix(std::max<size_t>(*size, 1));
      continue;
    }
    if (bytes.front() == '\n')
      NewLine(sink);
    else if (bytes.front() == '\r')
      row().at_start = true;
    else
      Back();
    bytes.remove_prefix(1);
  }
}

void ScreenLines::Put(std::string_view text, TimePoint now, const Sink& sink) {
  if (std::exchange(row().at_start, false)) {
    row().text.clear();
    row().is_redrawn = true;
  }
  if (row().text.empty()) since_ = now;
  row().text += text;
  while (row().text.size() > kMaxDisplayLineBytes) {
    size_t cut = kMaxDisplayLineBytes;
    while (cut > kMaxDisplayLineBytes - 3 && IsContinuation(row().text[cut])) --cut;
    sink(std::string_view(row().text).substr(0, cut));
    row().text.erase(0, cut);
  }
}

void ScreenLines::NewLine(const Sink& sink) {
  if (++at_ == rows_.size())
    rows_.emplace_back();
  else
    row().at_start = true;
  while (at_ > most_up_) {
    sink(rows_.front().text);
    rows_.pop_front();
    --at_;
  }
}

void ScreenLines::Back() {
  std::string& text = row().text;
  while (!text.empty() && IsContinuation(text.back())) text.pop_back();
  if (!text.empty()) text.pop_back();
}

std::optional<size_t> ScreenLines::Control(std::string_view text) {
  if (text.size() == 1) return std::nullopt;
  if (text[1] != '[') return 0;
  size_t end = 2;
  while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
  if (end > kMaxSequenceBytes) return 0;
  if (end == text.size()) return std::nullopt;
  size_t number = 0;
  for (const char digit : text.substr(2, end - 2))
    number = std::min<size_t>(number * 10 + static_cast<size_t>(digit - '0'), kMostRows);
  switch (text[end]) {
    case 'F':
    case 'A':
      MoveUp(std::max<size_t>(number, 1));
      return end + 1;
    case 'G':
      if (number > 1) return 0;
      row().at_start = true;
      return end + 1;
    case 'K':
      // The cursor is at the end of the row, so nothing is erased.
      if (number == 0 && !row().at_start) return end + 1;
      row().text.clear();
      row().is_redrawn = true;
      return end + 1;
    default:
      return 0;
  }
}

// Moves the cursor up. Lines above the topmost row were output already and cannot change any more,
// so empty rows are added for them, and more rows are kept from now on.
void ScreenLines::MoveUp(size_t rows) {
  const size_t below = rows_.size() - 1 - at_;
  while (at_ < rows && rows_.size() < kMostRows) {
    rows_.emplace_front();
    ++at_;
  }
  at_ -= std::min(at_, rows);
  most_up_ = std::max(most_up_, std::min(kMostRows - 1, rows + below));
  row().at_start = true;
}

std::vector<std::string> ScreenLines::Live(TimePoint now) const {
  std::vector<std::string> lines;
  for (size_t i = 0; i < rows_.size(); ++i) {
    const bool is_partial = i == at_ && !rows_[i].is_redrawn;
    if (IsBlank(rows_[i].text) || (is_partial && now < since_ + kPartialLineDelay)) continue;
    lines.push_back(rows_[i].text);
  }
  return lines;
}

void ScreenLines::Enter() { row() = {}; }

void ScreenLines::Finish(const Sink& sink) {
  row().text += sequence_;
  sequence_.clear();
  while (!rows_.empty() && rows_.back().text.empty()) rows_.pop_back();
  for (const Row& one : rows_) sink(one.text);
  rows_ = std::deque<Row>(1);
  at_ = most_up_ = 0;
}

}  // namespace dslaunch
