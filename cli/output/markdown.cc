#include "cli/output/markdown.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "base/text/split_lines.h"

namespace dslaunch {
namespace {

constexpr size_t kBlockIndent = 4;
constexpr size_t kColumnGap = 2;
constexpr size_t kLeastColumn = 8;

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

// Returns the number of columns of UTF-8 text, which is its number of characters, because all
// characters in these pages are one column wide.
size_t Columns(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string Padded(std::string text, size_t columns) {
  const size_t has = Columns(text);
  return has < columns ? text.append(columns - has, ' ') : text;
}

// Renders links, bold text and the descriptions of pictures. Code is kept unchanged.
std::string Inline(std::string_view text, const LinkText& link_text) {
  std::string result;
  while (!text.empty()) {
    if (text.front() == '`') {
      const size_t end = text.find('`', 1);
      if (end != std::string_view::npos) {
        result += text.substr(1, end - 1);
        text.remove_prefix(end + 1);
        continue;
      }
    } else if (text.starts_with("![")) {
      const size_t middle = text.find("](");
      const size_t end = middle == std::string_view::npos ? middle : text.find(')', middle);
      if (end != std::string_view::npos) {
        result += "(picture: " + Inline(text.substr(2, middle - 2), link_text) + ")";
        text.remove_prefix(end + 1);
        continue;
      }
    } else if (text.front() == '[') {
      const size_t middle = text.find("](");
      const size_t end = middle == std::string_view::npos ? middle : text.find(')', middle);
      if (end != std::string_view::npos) {
        result += Inline(text.substr(1, middle - 1), link_text);
        const std::string where = link_text(text.substr(middle + 2, end - middle - 2));
        if (!where.empty()) result += " [" + where + "]";
        text.remove_prefix(end + 1);
        continue;
      }
    } else if (text.starts_with("**")) {
      const size_t end = text.find("**", 2);
      if (end != std::string_view::npos) {
        result += Inline(text.substr(2, end - 2), link_text);
        text.remove_prefix(end + 2);
        continue;
      }
    } else if (text.starts_with("<http")) {
      const size_t end = text.find('>');
      if (end != std::string_view::npos) {
        result += text.substr(1, end - 1);
        text.remove_prefix(end + 1);
        continue;
      }
    } else if (text.starts_with("\\|")) {
      text.remove_prefix(1);
    }
    result += text.front();
    text.remove_prefix(1);
  }
  return result;
}

// Splits `text` into lines of at most `columns`. A word that is longer gets a line of its own.
std::vector<std::string> Wrapped(std::string_view text, size_t columns) {
  std::vector<std::string> lines;
  std::string line;
  while (!(text = Trimmed(text)).empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(word.size());
    if (!line.empty() && Columns(line) + 1 + Columns(word) > columns) {
      lines.push_back(std::move(line));
      line.clear();
    }
    line += (line.empty() ? "" : " ") + std::string(word);
  }
  if (!line.empty() || lines.empty()) lines.push_back(std::move(line));
  return lines;
}

// Wraps `text` with `first` before the first line, and indents the other lines by the length of
// `first`.
std::string Paragraph(std::string_view text, const std::string& first, size_t width) {
  const size_t indent = first.size();
  std::string result;
  for (const std::string& line : Wrapped(text, width > indent ? width - indent : 1)) {
    result += (result.empty() ? first : std::string(indent, ' ')) + line + "\n";
  }
  return result;
}

// Splits a row of a table: "| a | b\|c |" into "a" and "b\|c".
std::vector<std::string_view> Cells(std::string_view row) {
  std::vector<std::string_view> cells;
  row = Trimmed(row);
  row.remove_prefix(1);
  size_t begin = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i] != '|' || (i > 0 && row[i - 1] == '\\')) continue;
    cells.push_back(Trimmed(row.substr(begin, i - begin)));
    begin = i + 1;
  }
  return cells;
}

// Renders a cell. Replaces "\|" by '|' first, because Inline would keep it in code.
std::string CellText(std::string_view cell, const LinkText& link_text) {
  std::string text;
  for (size_t i = 0; i < cell.size(); ++i) {
    if (cell[i] == '\\' && i + 1 < cell.size() && cell[i + 1] == '|') continue;
    text += cell[i];
  }
  return Inline(text, link_text);
}

using Row = std::vector<std::string>;

// Returns the widths of the columns: the widths of their content, reduced for the widest columns if
// the row would exceed `width`.
std::vector<size_t> ColumnWidths(const std::vector<Row>& rows, size_t width) {
  std::vector<size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Columns(row[i]));
  }
  const auto total = [&] {
    size_t sum = kColumnGap * (widths.empty() ? 0 : widths.size() - 1);
    for (const size_t columns : widths) sum += columns;
    return sum;
  };
  while (!widths.empty() && total() > width) {
    size_t& widest = *std::ranges::max_element(widths);
    if (widest <= kLeastColumn) break;
    --widest;
  }
  return widths;
}

std::string RowText(const Row& row, const std::vector<size_t>& widths) {
  std::vector<std::vector<std::string>> cells;
  size_t height = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    cells.push_back(Wrapped(row[i], widths[i]));
    height = std::max(height, cells.back().size());
  }
  std::string text;
  for (size_t y = 0; y < height; ++y) {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i) {
      line += Padded(y < cells[i].size() ? cells[i][y] : "", widths[i] + kColumnGap);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

bool IsRule(const std::vector<std::string_view>& cells) {
  return std::ranges::all_of(cells, [](std::string_view cell) {
    return !cell.empty() && cell.find_first_not_of("-:") == std::string_view::npos;
  });
}

std::string Table(const std::vector<std::string_view>& lines, size_t width,
                  const LinkText& link_text) {
  std::vector<Row> rows;
  bool has_heading = false;
  for (const std::string_view line : lines) {
    const std::vector<std::string_view> cells = Cells(line);
    if (IsRule(cells)) {
      has_heading = rows.size() == 1;
      continue;
    }
    Row& row = rows.emplace_back();
    for (const std::string_view cell : cells) row.push_back(CellText(cell, link_text));
  }
  if (has_heading && std::ranges::all_of(rows.front(), &std::string::empty)) {
    rows.erase(rows.begin());
    has_heading = false;
  }
  const std::vector<size_t> widths = ColumnWidths(rows, width);
  std::string text;
  for (size_t i = 0; i < rows.size(); ++i) {
    text += RowText(rows[i], widths);
    if (i > 0 || !has_heading) continue;
    Row rules;
    for (size_t column = 0; column < rows[i].size(); ++column)
      rules.emplace_back(widths[column], '-');
    text += RowText(rules, widths);
  }
  return text;
}

// Returns the length of the mark of a list item, such as "- " or "12. "; 0 if the line is not an
// item.
size_t ItemMark(std::string_view line) {
  if (line.starts_with("- ")) return 2;
  size_t digits = 0;
  while (digits < line.size() && std::isdigit(static_cast<unsigned char>(line[digits])) != 0)
    ++digits;
  return digits > 0 && line.substr(digits).starts_with(". ") ? digits + 2 : 0;
}

bool BeginsBlock(std::string_view line) {
  return line.empty() || line.starts_with("#") || line.starts_with("```") ||
         line.starts_with("|") || ItemMark(line) > 0;
}

class Page {
 public:
  Page(std::string_view page, size_t width, const LinkText& link_text)
      : lines_(SplitLines(page)), width_(width), link_text_(link_text) {}

  std::string Text() {
    while (next_ < lines_.size()) {
      const std::string_view line = Trimmed(lines_[next_]);
      if (line.empty()) {
        ++next_;
        Gap();
      } else if (line.starts_with("<!--") && line.ends_with("-->")) {
        ++next_;
      } else if (line.starts_with("```")) {
        Block();
      } else if (line.starts_with("#")) {
        Heading(line);
      } else if (line.starts_with("|")) {
        TableBlock();
      } else {
        Prose();
      }
    }
    text_.erase(text_.find_last_not_of('\n') + 1);
    return text_ + "\n";
  }

 private:
  // Adds an empty line after the existing text.
  void Gap() {
    if (!text_.empty() && !text_.ends_with("\n\n")) text_ += "\n";
  }

  void Heading(std::string_view line) {
    const size_t level = line.find_first_not_of('#');
    const std::string title =
        Inline(Trimmed(line.substr(std::min(level, line.size()))), link_text_);
    Gap();
    text_ += title + "\n";
    if (level <= 2) text_ += std::string(Columns(title), level == 1 ? '=' : '-') + "\n";
    text_ += "\n";
    ++next_;
  }

  void Block() {
    const size_t indent = lines_[next_].find('`');
    for (++next_; next_ < lines_.size() && !Trimmed(lines_[next_]).starts_with("```"); ++next_) {
      std::string_view line = lines_[next_];
      line.remove_prefix(std::min(indent, line.size()));
      text_ +=
          (line.empty() ? "" : std::string(indent + kBlockIndent, ' ') + std::string(line)) + "\n";
    }
    ++next_;
  }

  void TableBlock() {
    std::vector<std::string_view> rows;
    while (next_ < lines_.size() && Trimmed(lines_[next_]).starts_with("|")) {
      rows.push_back(lines_[next_++]);
    }
    text_ += Table(rows, width_, link_text_);
  }

  // Renders a paragraph or list item with its continuation lines.
  void Prose() {
    const size_t indent = lines_[next_].find_first_not_of(' ');
    std::string_view line = Trimmed(lines_[next_++]);
    const size_t mark = ItemMark(line);
    const std::string first = std::string(indent, ' ') + std::string(line.substr(0, mark));
    std::string text(line.substr(mark));
    while (next_ < lines_.size() && !BeginsBlock(Trimmed(lines_[next_]))) {
      text += " " + std::string(Trimmed(lines_[next_++]));
    }
    text_ += Paragraph(Inline(text, link_text_), first, width_);
  }

  const std::vector<std::string_view> lines_;
  const size_t width_;
  const LinkText& link_text_;
  size_t next_ = 0;
  std::string text_;
};

}  // namespace

std::string RenderMarkdown(std::string_view page, size_t width, const LinkText& link_text) {
  return Page(page, width, link_text).Text();
}

}  // namespace dslaunch
