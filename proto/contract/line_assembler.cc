#include "proto/contract/line_assembler.h"

#include <algorithm>

namespace dslaunch {
namespace {

unsigned char At(std::string_view text, size_t i) { return static_cast<unsigned char>(text[i]); }

// Returns the index at which to cut `text`, which is longer than `limit`: `limit`, or the start of
// a character that extends beyond `limit`.
size_t CutAt(std::string_view text, size_t limit) {
  size_t start = limit;
  while (start > limit - 3 && (At(text, start) & 0xc0) == 0x80) --start;
  const unsigned char lead = At(text, start);
  const size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc2 ? 2 : 1;
  return start + size > limit ? start : limit;
}

}  // namespace

void LineAssembler::Append(std::string_view bytes, const Sink& sink) {
  // Many delimiters of one kind would make the search for the other kind quadratic, so each
  // delimiter is searched for again only after it is passed.
  size_t newline = bytes.find('\n');
  size_t carriage = bytes.find('\r');
  size_t begin = 0;
  while (begin < bytes.size()) {
    if (newline < begin) newline = bytes.find('\n', begin);
    if (carriage < begin) carriage = bytes.find('\r', begin);
    const size_t end = std::min({newline, carriage, bytes.size()});
    if (end == bytes.size()) {
      AddPartial(bytes.substr(begin), sink);
      return;
    }
    EndLine(bytes.substr(begin, end - begin), end == newline, sink);
    begin = end + 1;
  }
}

void LineAssembler::FlushPartial(const Sink& sink) {
  if (partial_.empty()) return;
  Finish(sink);
  end_shown_ = true;
}

void LineAssembler::Finish(const Sink& sink) {
  if (!partial_.empty()) sink(partial_);
  partial_.clear();
}

void LineAssembler::AddPartial(std::string_view text, const Sink& sink) {
  end_shown_ = false;
  partial_ += text;
  if (partial_.size() <= kMaxDisplayLineBytes) return;
  partial_ = std::string(EmitFullLines(partial_, sink));
}

// Passes the line that consists of partial_ and `rest` to `sink`.
void LineAssembler::EndLine(std::string_view rest, bool by_newline, const Sink& sink) {
  if (partial_.empty() && rest.empty()) {
    if (!by_newline) return;  // a single "\r" only moves the cursor
    if (!end_shown_) sink("");
    end_shown_ = false;
    return;
  }
  if (partial_.empty()) {
    sink(EmitFullLines(rest, sink));
  } else {
    partial_ += rest;
    sink(EmitFullLines(partial_, sink));
    partial_.clear();
  }
  end_shown_ = !by_newline;
}

// Passes parts of `line` to `sink` as separate lines until the rest is within the limit. Returns
// the rest.
std::string_view LineAssembler::EmitFullLines(std::string_view line, const Sink& sink) {
  while (line.size() > kMaxDisplayLineBytes) {
    const size_t cut = CutAt(line, kMaxDisplayLineBytes);
    sink(line.substr(0, cut));
    line.remove_prefix(cut);
  }
  return line;
}

}  // namespace dslaunch
