#include "cli/line_assembler.h"

#include <algorithm>

namespace dslaunch {
namespace {

constexpr unsigned char kEscape = 0x1b;
constexpr std::string_view kReplacement = "\xef\xbf\xbd";

unsigned char At(std::string_view text, size_t i) { return static_cast<unsigned char>(text[i]); }

// The bytes of the valid UTF-8 character at the start of `text`; 0 when there is none. Plain ASCII
// counts.
size_t Utf8Size(std::string_view text) {
  const unsigned char lead = At(text, 0);
  if (lead < 0x80) return 1;
  const size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((At(text, i) & 0xc0) != 0x80) return 0;
  }
  const unsigned char second = At(text, 1);
  const bool too_long = (lead == 0xe0 && second < 0xa0) || (lead == 0xf0 && second < 0x90);
  const bool surrogate = lead == 0xed && second >= 0xa0;
  const bool too_large = lead == 0xf4 && second >= 0x90;
  return too_long || surrogate || too_large ? 0 : size;
}

// The bytes of the escape sequence at the start of `text`, which begins with ESC (ECMA-48).
size_t EscapeSize(std::string_view text) {
  size_t i = 1;
  if (i == text.size()) return i;
  const unsigned char kind = At(text, i);
  if (kind == '[') {  // control sequence: parameters, then one final byte
    for (++i; i < text.size() && At(text, i) >= 0x20 && At(text, i) <= 0x3f;) ++i;
    return i < text.size() && At(text, i) >= 0x40 && At(text, i) <= 0x7e ? i + 1 : i;
  }
  if (kind == ']' || kind == 'P' || kind == 'X' || kind == '^' || kind == '_') {
    for (++i; i < text.size(); ++i) {  // a string, up to BEL or ESC backslash
      if (At(text, i) == 0x07) return i + 1;
      if (At(text, i) == kEscape) return i + 1 < text.size() && text[i + 1] == '\\' ? i + 2 : i;
    }
    return i;
  }
  while (i < text.size() && At(text, i) >= 0x20 && At(text, i) <= 0x2f) ++i;
  return i < text.size() && At(text, i) >= 0x30 && At(text, i) <= 0x7e ? i + 1 : i;
}

bool IsPlain(std::string_view line) {
  return std::all_of(line.begin(), line.end(),
                     [](char c) { return (c >= 0x20 && c < 0x7f) || c == '\t'; });
}

// Where to cut `text`, which is longer than `limit`: at `limit`, or before the character that lies
// across it.
size_t CutAt(std::string_view text, size_t limit) {
  size_t start = limit;
  while (start > limit - 3 && (At(text, start) & 0xc0) == 0x80) --start;
  const unsigned char lead = At(text, start);
  const size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc2 ? 2 : 1;
  return start + size > limit ? start : limit;
}

}  // namespace

std::string LineTag(std::string_view node, int rank) {
  return "[" + std::string(node) + ":" + std::to_string(rank) + "] ";
}

std::string Harmless(std::string_view line) {
  std::string out;
  out.reserve(line.size());
  while (!line.empty()) {
    size_t size = Utf8Size(line);
    const unsigned char c = At(line, 0);
    if (size == 0) {
      out += kReplacement;
      size = 1;
    } else if (c == kEscape) {
      size = EscapeSize(line);
    } else if (c == '\t' || (c >= 0x20 && c < 0x7f)) {
      out += line[0];
    } else if (size > 1 && !(c == 0xc2 && At(line, 1) < 0xa0)) {  // not U+0080 to U+009F
      out += line.substr(0, size);
    }
    line.remove_prefix(size);
  }
  return out;
}

void LineAssembler::Append(std::string_view bytes, TimePoint now, const Sink& sink) {
  // Each is searched for again only once it is passed, so that many of one do not make the other
  // quadratic.
  size_t newline = bytes.find('\n');
  size_t carriage = bytes.find('\r');
  size_t begin = 0;
  while (begin < bytes.size()) {
    if (newline < begin) newline = bytes.find('\n', begin);
    if (carriage < begin) carriage = bytes.find('\r', begin);
    const size_t end = std::min({newline, carriage, bytes.size()});
    if (end == bytes.size()) {
      AddPartial(bytes.substr(begin), now, sink);
      return;
    }
    EndLine(bytes.substr(begin, end - begin), end == newline, sink);
    begin = end + 1;
  }
}

std::optional<LineAssembler::TimePoint> LineAssembler::FlushDue() const {
  if (partial_.empty()) return std::nullopt;
  return partial_since_ + kPartialLineDelay;
}

void LineAssembler::FlushPartial(TimePoint now, const Sink& sink) {
  if (partial_.empty() || now < partial_since_ + kPartialLineDelay) return;
  Finish(sink);
  end_shown_ = true;
}

void LineAssembler::Finish(const Sink& sink) {
  if (!partial_.empty()) Emit(partial_, sink);
  partial_.clear();
}

void LineAssembler::AddPartial(std::string_view text, TimePoint now, const Sink& sink) {
  if (partial_.empty()) partial_since_ = now;
  end_shown_ = false;
  partial_ += text;
  if (partial_.size() <= kMaxDisplayLineBytes) return;
  partial_ = std::string(EmitFullLines(partial_, sink));
}

// `rest` is the end of a line, after what is in partial_.
void LineAssembler::EndLine(std::string_view rest, bool by_newline, const Sink& sink) {
  if (partial_.empty() && rest.empty()) {
    if (!by_newline) return;  // "\r" alone only moves the cursor
    if (!end_shown_) Emit("", sink);
    end_shown_ = false;
    return;
  }
  if (partial_.empty()) {
    Emit(EmitFullLines(rest, sink), sink);
  } else {
    partial_ += rest;
    Emit(EmitFullLines(partial_, sink), sink);
    partial_.clear();
  }
  end_shown_ = !by_newline;
}

// Gives what of `line` is beyond the limit as lines of their own; returns the rest, which is within
// it.
std::string_view LineAssembler::EmitFullLines(std::string_view line, const Sink& sink) const {
  while (line.size() > kMaxDisplayLineBytes) {
    const size_t cut = CutAt(line, kMaxDisplayLineBytes);
    Emit(line.substr(0, cut), sink);
    line.remove_prefix(cut);
  }
  return line;
}

void LineAssembler::Emit(std::string_view line, const Sink& sink) const {
  if (sanitize_ && !IsPlain(line)) {
    sink(Harmless(line));
  } else {
    sink(line);
  }
}

}  // namespace dslaunch
