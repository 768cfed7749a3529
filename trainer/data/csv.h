// Reads CSV files: text with one sample in each line and fields separated by commas.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dslaunch {

struct CsvTable {
  int64_t num_features = 0;     // number of features, at least 1
  std::vector<float> features;  // row-major matrix [labels.size(), num_features]
  std::vector<int64_t> labels;  // label of each row; at least one row
};

// The columns to read. A column is given by its name in the first line, or by its index, counted
// from 0.
struct CsvColumns {
  std::string label;  // column of the label; the last column if empty
  // The feature columns, in the order of the model's inputs; all columns except the label if empty.
  std::vector<std::string> features;
  std::vector<std::string> label_names;  // names of the classes; empty if labels are numbers
};

// Reads a table whose first line may name the columns. Every label must be one of the class names
// or, without class names, a whole number from 0 to num_classes - 1. Every feature must be a finite
// number. Other columns may contain anything. Fields may be in double quotes; empty lines are
// ignored. Throws TrainError: kBadInput, naming the file and the line, for invalid contents, or kIo
// if the file cannot be read.
CsvTable ReadCsv(const std::string& file, const CsvColumns& columns, int64_t num_classes);

}  // namespace dslaunch
