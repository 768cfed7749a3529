#include "trainer/data/csv.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

#include "trainer/base/mapped_file.h"
#include "trainer/base/train_error.h"

namespace dslaunch {
namespace {

struct Field {
  std::string text;
  bool quoted = false;
};

std::optional<double> Number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// What a file holds, as part of a message on a terminal.
std::string Shown(std::string_view text) {
  std::string shown(text.substr(0, 40));
  for (char& c : shown) {
    if (c < ' ' || c > '~') c = '?';
  }
  return "\"" + shown + (text.size() > 40 ? "...\"" : "\"");
}

class CsvReader {
 public:
  explicit CsvReader(const std::string& file) : file_(file) {
    const std::span<const uint8_t> bytes = file_.bytes();
    rest_ = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    if (rest_.starts_with("\xEF\xBB\xBF")) rest_.remove_prefix(3);  // what Excel puts in front
  }

  [[noreturn]] void Fail(const std::string& problem) const {
    throw TrainError(ExitCode::kBadInput,
                     file_.path() + ":" + std::to_string(line_number_) + ": " + problem);
  }

  // The fields of the next line that is not empty; false at the end. They are gone with the next
  // call.
  bool Next(std::vector<Field>& fields) {
    while (!rest_.empty()) {
      const size_t end = std::min(rest_.find('\n'), rest_.size());
      std::string_view line = rest_.substr(0, end);
      rest_.remove_prefix(std::min(end + 1, rest_.size()));
      ++line_number_;
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
      Split(line, fields);
      return true;
    }
    return false;
  }

 private:
  void Split(std::string_view line, std::vector<Field>& fields) const {
    fields.clear();
    while (true) {
      const size_t start = std::min(line.find_first_not_of(" \t"), line.size());
      line.remove_prefix(start);
      Field field;
      if (line.starts_with('"')) {
        field = {Unquote(line), true};
        if (!line.empty() && line.front() != ',') {
          Fail("there is text after the closing quote of " + Shown(field.text));
        }
      } else {
        const std::string_view text = line.substr(0, line.find(','));
        line.remove_prefix(text.size());
        field.text = text.substr(0, text.find_last_not_of(" \t") + 1);
      }
      fields.push_back(std::move(field));
      if (line.empty()) return;
      line.remove_prefix(1);
    }
  }

  // Takes a quoted field and the blanks after it from the front of `line`.
  std::string Unquote(std::string_view& line) const {
    std::string text;
    for (size_t i = 1; i < line.size(); ++i) {
      if (line[i] != '"') {
        text += line[i];
      } else if (line.substr(i + 1).starts_with('"')) {
        text += line[i++];
      } else {
        line.remove_prefix(std::min(line.find_first_not_of(" \t", i + 1), line.size()));
        return text;
      }
    }
    Fail("a quote is not closed on its line");
  }

  MappedFile file_;
  std::string_view rest_;
  size_t line_number_ = 0;
};

// A line with names is a header. One that also has numbers may be a typing error, unless the names
// are quoted.
bool IsHeader(const CsvReader& reader, const std::vector<Field>& first_line) {
  size_t numbers = 0;
  bool quoted = false;
  for (const Field& field : first_line) {
    numbers += Number(field.text).has_value();
    quoted |= field.quoted;
  }
  if (numbers > 0 && numbers < first_line.size() && !quoted) {
    reader.Fail(
        "has both numbers and other text; put the names in quotes if this line names the columns");
  }
  return numbers < first_line.size();
}

size_t LabelIndex(const CsvReader& reader, const std::vector<Field>& first_line, bool header,
                  const std::string& label_column) {
  if (label_column.empty()) return first_line.size() - 1;
  if (header) {
    const auto named = [&](const Field& field) { return field.text == label_column; };
    const auto count = std::count_if(first_line.begin(), first_line.end(), named);
    if (count > 1) reader.Fail("has two columns named " + Shown(label_column));
    if (count == 1) {
      return static_cast<size_t>(std::find_if(first_line.begin(), first_line.end(), named) -
                                 first_line.begin());
    }
  }
  size_t index = 0;
  const char* end = label_column.data() + label_column.size();
  const auto [stop, error] = std::from_chars(label_column.data(), end, index);
  if (error != std::errc() || stop != end) {
    reader.Fail(
        "has no column named " + Shown(label_column) + "; set data.label_column" +
        (header ? "" : " to a column number (the first is 0), because the file names no columns"));
  }
  if (index >= first_line.size()) {
    reader.Fail("has " + std::to_string(first_line.size()) +
                " columns, so data.label_column is at most " +
                std::to_string(first_line.size() - 1) + ", not " + label_column);
  }
  return index;
}

}  // namespace

CsvTable ReadCsv(const std::string& file, const std::string& label_column, int64_t num_classes) {
  CsvReader reader(file);
  std::vector<Field> fields;
  if (!reader.Next(fields)) throw TrainError(ExitCode::kBadInput, file + ": is empty");
  const size_t columns = fields.size();
  if (columns < 2) {
    reader.Fail(
        "has only one column; it needs a label and at least one feature, separated by a "
        "comma");
  }
  const bool header = IsHeader(reader, fields);
  const size_t label_index = LabelIndex(reader, fields, header, label_column);
  CsvTable table;
  table.num_features = static_cast<int64_t>(columns) - 1;
  if (header && !reader.Next(fields)) {
    throw TrainError(ExitCode::kBadInput, file + ": has no line after the column names");
  }
  do {
    if (fields.size() != columns) {
      reader.Fail("has " + std::to_string(fields.size()) + " fields where the first line has " +
                  std::to_string(columns));
    }
    for (size_t i = 0; i < columns; ++i) {
      const auto fail = [&](const std::string& problem) {
        reader.Fail("column " + std::to_string(i) + ", " + Shown(fields[i].text) + ", " + problem);
      };
      const std::optional<double> value = Number(fields[i].text);
      if (!value) fail("is not a number");
      if (i != label_index) {
        table.features.push_back(static_cast<float>(*value));
        if (!std::isfinite(table.features.back())) fail("is not finite in float32");
        continue;
      }
      // Beyond 2^53 doubles are no longer exact.
      if (!(*value >= 0 && *value < 0x1p53) || *value != std::floor(*value)) {
        fail("is the label, which must be a whole number from 0");
      }
      const auto label = static_cast<int64_t>(*value);
      if (label >= num_classes) {
        fail("is the label, which must be below model.num_classes, " + std::to_string(num_classes));
      }
      table.labels.push_back(label);
    }
  } while (reader.Next(fields));
  return table;
}

}  // namespace dslaunch
