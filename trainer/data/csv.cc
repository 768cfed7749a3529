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

// Returns `text` in a form for messages on a terminal: quoted, with at most 40 characters, and with
// '?' for unprintable characters.
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
    if (rest_.starts_with("\xEF\xBB\xBF"))
      rest_.remove_prefix(3);  // byte order mark, which Excel writes
  }

  [[noreturn]] void Fail(const std::string& problem) const {
    throw TrainError(ExitCode::kBadInput,
                     file_.path() + ":" + std::to_string(line_number_) + ": " + problem);
  }

  // Reads the fields of the next non-empty line; returns false at the end of the file. The fields
  // are valid until the next call.
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

  // Removes a quoted field, and the blanks after it, from the front of `line`. Returns the field's
  // text.
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

// Returns whether the first line is a header, which consists of names. A line with names and
// numbers may be a mistake, so it throws, unless the names are quoted or samples may also contain
// text.
bool IsHeader(const CsvReader& reader, const std::vector<Field>& first_line,
              const CsvColumns& columns) {
  size_t numbers = 0;
  bool quoted = false;
  for (const Field& field : first_line) {
    numbers += Number(field.text).has_value();
    quoted |= field.quoted;
  }
  if (!columns.label_names.empty() || !columns.features.empty()) return numbers == 0;
  if (numbers > 0 && numbers < first_line.size() && !quoted) {
    reader.Fail(
        "has both numbers and other text; put the names in quotes if this line names the columns");
  }
  return numbers < first_line.size();
}

// Returns the index of `column`, which is a name or an index. `key` is the recipe's key for the
// column, for messages.
size_t ColumnIndex(const CsvReader& reader, const std::vector<Field>& first_line, bool header,
                   const std::string& column, const std::string& key) {
  if (header) {
    const auto count = std::ranges::count(first_line, column, &Field::text);
    if (count > 1) reader.Fail("has two columns named " + Shown(column));
    if (count == 1) {
      return static_cast<size_t>(std::ranges::find(first_line, column, &Field::text) -
                                 first_line.begin());
    }
  }
  size_t index = 0;
  const char* end = column.data() + column.size();
  const auto [stop, error] = std::from_chars(column.data(), end, index);
  if (error != std::errc() || stop != end) {
    reader.Fail(
        "has no column named " + Shown(column) + "; set " + key +
        (header ? "" : " to a column number (the first is 0), because the file names no columns"));
  }
  if (index >= first_line.size()) {
    reader.Fail("has " + std::to_string(first_line.size()) + " columns, so " + key +
                " is at most " + std::to_string(first_line.size() - 1) + ", not " + column);
  }
  return index;
}

// Returns the indices of the feature columns, in the order of the model's inputs.
std::vector<size_t> FeatureIndexes(const CsvReader& reader, const std::vector<Field>& first_line,
                                   bool header, const CsvColumns& columns, size_t label_index) {
  std::vector<size_t> indexes;
  for (const std::string& column : columns.features) {
    const size_t index = ColumnIndex(reader, first_line, header, column, "data.columns");
    if (index == label_index)
      reader.Fail("data.columns names the label's column, " + Shown(column));
    indexes.push_back(index);
  }
  for (size_t i = 0; columns.features.empty() && i < first_line.size(); ++i) {
    if (i != label_index) indexes.push_back(i);
  }
  return indexes;
}

// Returns the label in a field. `fail` is called to throw an error about the field.
template <class Fail>
int64_t ReadLabel(const Field& field, const CsvColumns& columns, int64_t num_classes, Fail fail) {
  if (!columns.label_names.empty()) {
    const auto name = std::ranges::find(columns.label_names, field.text);
    if (name == columns.label_names.end()) fail("is the label, but not one of data.label_names");
    return name - columns.label_names.begin();
  }
  const std::optional<double> value = Number(field.text);
  if (!value) fail("is not a number; labels that are names need data.label_names: [cat, dog, ...]");
  // Doubles are not exact beyond 2^53, so larger labels are rejected.
  if (!(*value >= 0 && *value < 0x1p53) || *value != std::floor(*value))
    fail("is the label, which must be a whole number from 0");
  const auto label = static_cast<int64_t>(*value);
  if (label >= num_classes)
    fail("is the label, which must be below model.num_classes, " + std::to_string(num_classes));
  return label;
}

}  // namespace

CsvTable ReadCsv(const std::string& file, const CsvColumns& columns, int64_t num_classes) {
  if (static_cast<int64_t>(columns.label_names.size()) > num_classes) {
    throw TrainError(ExitCode::kBadInput,
                     "data.label_names has " + std::to_string(columns.label_names.size()) +
                         " names, but model.num_classes is " + std::to_string(num_classes) +
                         "; set it to at least that");
  }
  CsvReader reader(file);
  std::vector<Field> fields;
  if (!reader.Next(fields)) throw TrainError(ExitCode::kBadInput, file + ": is empty");
  const size_t width = fields.size();
  if (width < 2) {
    reader.Fail(
        "has only one column; it needs a label and at least one feature, separated by a "
        "comma");
  }
  const bool header = IsHeader(reader, fields, columns);
  const size_t label_index =
      columns.label.empty()
          ? width - 1
          : ColumnIndex(reader, fields, header, columns.label, "data.label_column");
  const std::vector<size_t> features = FeatureIndexes(reader, fields, header, columns, label_index);
  CsvTable table;
  table.num_features = static_cast<int64_t>(features.size());
  if (header && !reader.Next(fields)) {
    throw TrainError(ExitCode::kBadInput, file + ": has no line after the column names");
  }
  do {
    if (fields.size() != width) {
      reader.Fail("has " + std::to_string(fields.size()) + " fields where the first line has " +
                  std::to_string(width));
    }
    const auto fail_at = [&](size_t i) {
      return [&reader, &fields, i](const std::string& problem) {
        reader.Fail("column " + std::to_string(i) + ", " + Shown(fields[i].text) + ", " + problem);
      };
    };
    for (const size_t i : features) {
      const std::optional<double> value = Number(fields[i].text);
      if (!value) fail_at(i)("is not a number");
      table.features.push_back(static_cast<float>(*value));
      if (!std::isfinite(table.features.back())) fail_at(i)("is not finite in float32");
    }
    table.labels.push_back(
        ReadLabel(fields[label_index], columns, num_classes, fail_at(label_index)));
  } while (reader.Next(fields));
  return table;
}

}  // namespace dslaunch
