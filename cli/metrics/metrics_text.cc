#include "cli/metrics/metrics_text.h"

#include <array>
#include <charconv>
#include <cmath>

#include "base/text/sanitize.h"

namespace dslaunch {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD, the replacement character

// Returns the length of the UTF-8 character at the beginning of `text`; 0 if it is not valid UTF-8.
size_t CharacterBytes(std::string_view text) {
  const auto first = static_cast<unsigned char>(text.front());
  const size_t length = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  return text.size() >= length && IsUtf8(text.substr(0, length)) ? length : 0;
}

void AppendEscaped(std::string_view value, std::string& out) {
  while (!value.empty()) {
    const size_t length = CharacterBytes(value);
    if (length == 0) {
      out += kReplacement;
      value.remove_prefix(1);
      continue;
    }
    const char c = value.front();
    if (c == '\\')
      out += "\\\\";
    else if (c == '"')
      out += "\\\"";
    else if (c == '\n')
      out += "\\n";
    else if (length == 1 && (static_cast<unsigned char>(c) < ' ' || c == 0x7f))
      out += ' ';
    else
      out += value.substr(0, length);
    value.remove_prefix(length);
  }
}

void AppendNumber(double value, std::string& out) {
  if (std::isnan(value)) {
    out += "NaN";
  } else if (std::isinf(value)) {
    out += value > 0 ? "+Inf" : "-Inf";
  } else {
    std::array<char, 32> text;
    const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
    out.append(text.data(), end);
  }
}

}  // namespace

std::string LabelsText(
    std::initializer_list<std::pair<std::string_view, std::string_view>> labels) {
  std::string text;
  for (const auto& [name, value] : labels) {
    if (value.empty()) continue;
    if (!text.empty()) text += ',';
    text += name;
    text += "=\"";
    AppendEscaped(value, text);
    text += '"';
  }
  return text;
}

void MetricsWriter::Begin(const Family& family) {
  family_ = &family;
  has_sample_ = false;
  sample_name_ = family.name;
  if (family.type == Type::kCounter) sample_name_ += "_total";
}

void MetricsWriter::Add(std::string_view labels, std::string_view more, double value) {
  if (!has_sample_) {
    has_sample_ = true;
    const bool is_open = format_ == MetricsFormat::kOpenMetrics;
    const std::string name = is_open ? family_->name : sample_name_;
    text_ += "# HELP " + name + " " + family_->help + "\n# TYPE " + name +
             (family_->type == Type::kCounter ? " counter\n" : " gauge\n");
    if (is_open && *family_->unit != '\0') text_ += "# UNIT " + name + " " + family_->unit + "\n";
  }
  text_ += sample_name_;
  if (!labels.empty() || !more.empty()) {
    text_ += '{';
    text_ += labels;
    if (!labels.empty() && !more.empty()) text_ += ',';
    text_ += more;
    text_ += '}';
  }
  text_ += ' ';
  AppendNumber(value, text_);
  text_ += '\n';
}

std::string MetricsWriter::Finish() {
  if (format_ == MetricsFormat::kOpenMetrics) text_ += "# EOF\n";
  return std::move(text_);
}

}  // namespace dslaunch
