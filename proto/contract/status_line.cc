#include "proto/contract/status_line.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>

namespace dslaunch {
namespace {

constexpr char kMemorySource[] = "memory";
constexpr char kDiskSource[] = "disk";

// Reads one flat JSON object with string, number, true, false and null values. A status line must
// not contain nested values or escapes in strings, so Parse returns nullopt for them.
class FlatJson {
 public:
  explicit FlatJson(std::string_view text) : rest_(text) {}

  bool Take(char c) {
    SkipSpace();
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  bool TakeString(std::string_view& out) {
    if (!Take('"')) return false;
    const size_t end = rest_.find_first_of("\"\\");
    if (end == std::string_view::npos || rest_[end] == '\\') return false;
    out = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return true;
  }

  // Removes a number, true, false or null from the front of the text, and sets `out` to its
  // characters.
  bool TakeScalar(std::string_view& out) {
    SkipSpace();
    const size_t end = rest_.find_first_of(",} \t");
    if (end == 0 || end == std::string_view::npos) return false;
    out = rest_.substr(0, end);
    rest_.remove_prefix(end);
    return out.find_first_of("{[\"") == std::string_view::npos;
  }

  bool AtString() {
    SkipSpace();
    return !rest_.empty() && rest_.front() == '"';
  }

  bool AtEnd() {
    SkipSpace();
    return rest_.empty();
  }

 private:
  void SkipSpace() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\t' ||
                              rest_.front() == '\r' || rest_.front() == '\n')) {
      rest_.remove_prefix(1);
    }
  }
  std::string_view rest_;
};

std::optional<double> ReadDouble(std::string_view text) {
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

bool ReadCount(std::string_view text, int64_t& out) {
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), out);
  return status == std::errc() && end == text.data() + text.size() && out >= 0;
}

// Returns whether a field is a result of an evaluation: a number, or null, with a plain name. The
// trainer writes null for NaN and infinite values.
bool IsResult(std::string_view name, std::string_view value) {
  constexpr size_t kMaxNameBytes = 64;
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-./@").find(c) != std::string_view::npos;
  };
  if (name == "step" || name == "total_steps" || name.empty() || name.size() > kMaxNameBytes)
    return false;
  return std::ranges::all_of(name, is_plain) && (value == "null" || ReadDouble(value));
}

std::string FormatDouble(double value, int digits = 9) {
  if (!std::isfinite(value)) return "null";
  char text[32];
  std::snprintf(text, sizeof text, "%.*g", digits, value);
  return text;
}

// Returns `text` without the characters that a string of a status line must not contain, cut to 256
// bytes.
std::string PlainText(std::string text) {
  constexpr size_t kMaxBytes = 256;
  std::erase_if(text, [](unsigned char c) { return c < ' ' || c == '"' || c == '\\'; });
  text.resize(std::min(text.size(), kMaxBytes));
  return text;
}

std::optional<StatusLine::Event> ReadEvent(std::string_view name) {
  if (name == "ready") return StatusLine::Event::kReady;
  if (name == "step") return StatusLine::Event::kStep;
  if (name == "eval") return StatusLine::Event::kEval;
  if (name == "lost") return StatusLine::Event::kLost;
  if (name == "wait") return StatusLine::Event::kWait;
  if (name == "copied") return StatusLine::Event::kCopied;
  if (name == "restored") return StatusLine::Event::kRestored;
  if (name == "save") return StatusLine::Event::kSave;
  if (name == "saved") return StatusLine::Event::kSaved;
  return std::nullopt;
}

// Reads the value of a key into the member of `status` for that key. Returns false if `value` is
// not valid.
bool ReadField(std::string_view key, std::string_view value, StatusLine& status) {
  if (key == "total_steps") return ReadCount(value, status.total_steps);
  if (key == "loss_tolerated") {
    status.loss_tolerated = value == "true";
  } else if (key == "loss") {
    status.loss = ReadDouble(value);
  } else if (key == "samples_per_s") {
    status.samples_per_s = ReadDouble(value);
  } else if (key == "tokens_per_s") {
    status.tokens_per_s = ReadDouble(value);
  } else if (key == "wait_s") {
    const std::optional<double> waits = ReadDouble(value);
    if (!waits || *waits < 0) return false;
    status.waits_s = *waits;
  } else if (key == "reached_step") {
    return ReadCount(value, status.reached_step.emplace());
  } else if (key == "compute_s") {
    status.compute_s = ReadDouble(value);
  }
  return true;
}

}  // namespace

std::string StatusLine::Format() const {
  if (event == Event::kReady) {
    return loss_tolerated ? "{\"event\":\"ready\",\"loss_tolerated\":true}\n"
                          : "{\"event\":\"ready\"}\n";
  }
  if (event == Event::kLost)
    return "{\"event\":\"lost\",\"rank\":" + std::to_string(lost_rank) + "}\n";
  if (event == Event::kWait) {
    return "{\"event\":\"wait\",\"exchange\":\"" + PlainText(exchange) +
           "\",\"wait_s\":" + FormatDouble(waits_s) + "}\n";
  }
  if (event == Event::kCopied)
    return "{\"event\":\"copied\",\"step\":" + std::to_string(step) + "}\n";
  if (event == Event::kRestored) {
    return "{\"event\":\"restored\",\"step\":" + std::to_string(step) + ",\"source\":\"" +
           (from_memory ? kMemorySource : kDiskSource) + "\"" +
           (reached_step ? ",\"reached_step\":" + std::to_string(*reached_step) : "") + "}\n";
  }
  if (event == Event::kEval) {
    std::string line = "{\"event\":\"eval\",\"step\":" + std::to_string(step);
    for (const auto& [name, value] : results)
      line +=
          // The 15 digits keep counts exact.
          ",\"" + name + "\":" + FormatDouble(value, /*digits=*/15);
    return line + "}\n";
  }
  if (event == Event::kSave || event == Event::kSaved) {
    return std::string("{\"event\":\"") + (event == Event::kSave ? "save" : "saved") +
           "\",\"step\":" + std::to_string(step) + "}\n";
  }
  std::string line = "{\"event\":\"step\",\"step\":" + std::to_string(step);
  if (total_steps > 0) line += ",\"total_steps\":" + std::to_string(total_steps);
  if (loss) line += ",\"loss\":" + FormatDouble(*loss);
  if (samples_per_s) line += ",\"samples_per_s\":" + FormatDouble(*samples_per_s);
  if (tokens_per_s) line += ",\"tokens_per_s\":" + FormatDouble(*tokens_per_s);
  if (compute_s) line += ",\"compute_s\":" + FormatDouble(*compute_s);
  return line + "}\n";
}

std::optional<StatusLine> StatusLine::Parse(std::string_view line) {
  if (line.size() > kMaxStatusLineBytes) return std::nullopt;
  FlatJson json(line);
  if (!json.Take('{')) return std::nullopt;
  StatusLine status;
  std::string_view source;
  bool has_event = false;
  bool has_step = false;
  std::optional<int64_t> rank;
  while (!json.Take('}')) {
    std::string_view key, value;
    if (!json.TakeString(key) || !json.Take(':')) return std::nullopt;
    if (json.AtString()) {
      if (!json.TakeString(value)) return std::nullopt;
      if (key == "event") {
        const std::optional<Event> event = ReadEvent(value);
        if (!event) return std::nullopt;
        status.event = *event;
        has_event = true;
      } else if (key == "exchange") {
        status.exchange = value;
      } else if (key == "source") {
        source = value;
      }
    } else {
      if (!json.TakeScalar(value)) return std::nullopt;
      if (IsResult(key, value)) {
        status.results.emplace_back(key, ReadDouble(value).value_or(std::nan("")));
      }
      if (key == "step") {
        if (!ReadCount(value, status.step)) return std::nullopt;
        has_step = true;
      } else if (key == "rank") {  // kLost; other kinds may have a user's field "rank"
        if (!ReadCount(value, rank.emplace())) rank.reset();
      } else if (!ReadField(key, value, status)) {
        return std::nullopt;
      }
    }
    if (json.Take(',')) continue;
    if (!json.Take('}')) return std::nullopt;
    break;
  }
  if (!json.AtEnd() || !has_event) return std::nullopt;
  const bool needs_step = status.event == Event::kStep || status.event == Event::kCopied ||
                          status.event == Event::kRestored;
  if (needs_step && !has_step) return std::nullopt;
  if (status.event == Event::kRestored) {
    if (source != kMemorySource && source != kDiskSource) return std::nullopt;
    status.from_memory = source == kMemorySource;
  }
  if (status.event == Event::kLost) {
    if (!rank || *rank > std::numeric_limits<uint32_t>::max()) return std::nullopt;
    status.lost_rank = static_cast<uint32_t>(*rank);
  }
  if (status.event != Event::kRestored) status.reached_step.reset();
  if (status.event != Event::kWait) status.exchange.clear();
  if (status.event != Event::kEval) status.results.clear();
  if (status.event != Event::kReady) status.loss_tolerated = false;
  return status;
}

}  // namespace dslaunch
