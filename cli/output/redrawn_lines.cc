#include "cli/output/redrawn_lines.h"

#include <algorithm>

namespace dslaunch {
namespace {

constexpr std::string_view kCursorUp = "\x1b[A";  // written by tqdm for the lower of several bars

bool OnlyErases(std::string_view text) { return text.find_first_not_of(" \t") == text.npos; }

}  // namespace

void RedrawnLines::Append(std::string_view bytes, TimePoint now, const Sink& sink) {
  size_t newline = bytes.find('\n');
  size_t carriage = bytes.find('\r');
  for (size_t begin = 0; begin < bytes.size();) {
    if (newline < begin) newline = bytes.find('\n', begin);
    if (carriage < begin) carriage = bytes.find('\r', begin);
    // No row is redrawn, so the rest is appended in one piece.
    if (carriage == bytes.npos && !is_redrawn_ && !held_) {
      lines_.Append(bytes.substr(begin), sink);
      has_partial_ = !bytes.ends_with('\n');
      return;
    }
    size_t end = std::min({newline, carriage, bytes.size() - 1}) + 1;
    if (end - 1 == carriage && newline == end) ++end;  // "\r\n" is a single line end
    AddPiece(bytes.substr(begin, end - begin), now, sink);
    begin = end;
  }
}

// Adds a line, or a part of a line; `piece` includes the line end, if any.
void RedrawnLines::AddPiece(std::string_view piece, TimePoint now, const Sink& sink) {
  const bool by_newline = piece.ends_with('\n');
  const bool by_return = piece.ends_with('\r');
  moves_up_ = moves_up_ || piece.find(kCursorUp) != piece.npos;
  // The newline ends the row whose "\r" was in an earlier piece.
  if (piece == "\n" && held_ && !has_partial_) {
    lines_.Append(piece, [](std::string_view) {});
    if (!moves_up_) {
      sink(*held_);
      held_.reset();
    }
    is_redrawn_ = false;
    return;
  }
  const bool is_state = by_return || (by_newline && is_redrawn_ && moves_up_);
  lines_.Append(piece, [&](std::string_view line) {
    if (is_state) return OnRedrawn(line, now, sink);
    held_.reset();  // the held line was an earlier state of the same row
    sink(line);
  });
  has_partial_ = !by_newline && !by_return;
  if (by_return) is_redrawn_ = true;
  if (by_newline) is_redrawn_ = false;
  if (!has_partial_) is_late_ = false;
}

void RedrawnLines::OnRedrawn(std::string_view line, TimePoint now, const Sink& sink) {
  if (OnlyErases(line)) return;
  if (!IsDue(now)) {
    held_ = line;
    return;
  }
  held_.reset();
  shown_at_ = now;
  sink(line);
}

void RedrawnLines::FlushPartial(TimePoint now, const Sink& sink) {
  if (is_redrawn_ && !IsDue(now)) {
    is_late_ = has_partial_;
    return;
  }
  if (is_redrawn_ && has_partial_) {
    shown_at_ = now;
    held_.reset();
  }
  lines_.FlushPartial(sink);
  has_partial_ = is_late_ = false;
}

std::optional<RedrawnLines::TimePoint> RedrawnLines::FlushDue() const {
  if (!held_ && !is_late_) return std::nullopt;
  return *shown_at_ + kEvery;
}

void RedrawnLines::Flush(TimePoint now, const Sink& sink) {
  if (!IsDue(now)) return;
  if (is_late_) return FlushPartial(now, sink);
  if (!held_) return;
  shown_at_ = now;
  sink(*held_);
  held_.reset();
}

void RedrawnLines::Finish(const Sink& sink) {
  if (held_ && !has_partial_) sink(*held_);
  lines_.Finish(sink);
  held_.reset();
  is_redrawn_ = has_partial_ = is_late_ = false;
}

}  // namespace dslaunch
