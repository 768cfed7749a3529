// Parses the command line of `dslaunch data prepare`, which the trainer runs.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "cli/options/option_table.h"

namespace dslaunch {

struct DataCommand {
  std::string help;  // text to print on stdout instead of running the command; empty to run it
  std::vector<std::string> words;  // arguments of the trainer (trainer/program/data_tool.h)

  // The values of the command line, from which `words` are made.
  std::vector<std::string> inputs;
  std::string tokenizer;
  std::string output;
  std::string key;
  int threads = 0;  // number of threads; 0 if not given
  bool force = false;
};

const OptionTable& DataPrepareOptions();
extern const char kDataPrepareDetails[];  // further lines of the help of `data prepare`

// Parses the command line, whose first word in `words` is "data". Errors are kUsage, one line with
// a hint.
Result<DataCommand> ParseDataCommand(const std::vector<std::string>& words);

}  // namespace dslaunch
