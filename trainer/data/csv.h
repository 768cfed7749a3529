// Tables as text: a sample per line, fields separated by commas.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dslaunch {

struct CsvTable {
  int64_t num_features = 0;     // at least 1
  std::vector<float> features;  // row-major, {labels.size(), num_features}
  std::vector<int64_t> labels;  // at least one
};

// The columns to read. A column is given by a name in the first line or by its number from 0.
struct CsvColumns {
  std::string label;  // empty: the last
  std::vector<std::string>
      features;  // in the order of the model's inputs; empty: all but the label
  std::vector<std::string> label_names;  // class names from label 0; empty if the file has numbers
};

// Reads a table whose first line may name the columns. Every label must be one of the class names
// or, without these, a whole number from 0 to num_classes - 1; every feature must be a finite
// number; other columns may contain anything. Fields may be in double quotes; empty lines are
// ignored. Throws TrainError kBadInput, naming the file and the line, or kIo.
CsvTable ReadCsv(const std::string& file, const CsvColumns& columns, int64_t num_classes);

}  // namespace dslaunch
