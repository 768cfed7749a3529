// Formats tables as plain text.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace dslaunch {

// Returns a table with one line for each row and aligned columns. Precondition: all rows have the
// same number of cells, and each cell is one line of ASCII, because other characters misalign the
// columns.
inline std::string TextTable(const std::vector<std::vector<std::string>>& rows,
                             const std::string& indent = "") {
  std::vector<size_t> widths;
  for (const std::vector<std::string>& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    std::string line = indent;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line += std::string(widths[i] - row[i].size() + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace dslaunch
