// Tables of numbers as text, one sample a line, fields separated by commas.
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

// The first line may name the columns. `label_column` is one of these names or a number counted
// from 0; empty: the last. Every label is a whole number from 0 to num_classes - 1, every other
// field a finite number. Fields may stand in double quotes; empty lines are passed over. Throws
// TrainError kBadInput, naming the file and the line, or kIo.
CsvTable ReadCsv(const std::string& file, const std::string& label_column, int64_t num_classes);

}  // namespace dslaunch
