#include "trainer/program/data_tool.h"

#include <charconv>
#include <optional>

#include "base/text/sanitize.h"
#include "trainer/base/log.h"
#include "trainer/base/train_error.h"
#include "trainer/prepare/prepare.h"

namespace dslaunch {
namespace {

// Parses the arguments of `data prepare`; returns nullopt if they are not valid.
std::optional<PrepareOptions> ParsePrepareOptions(const std::vector<std::string>& words) {
  PrepareOptions options;
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--force") {
      options.force = true;
      continue;
    }
    if (word == "--") {
      options.inputs.insert(options.inputs.end(),
                            words.begin() + static_cast<std::ptrdiff_t>(i) + 1, words.end());
      break;
    }
    if (i + 1 == words.size()) return std::nullopt;
    const std::string& value = words[++i];
    if (word == "--tokenizer") {
      options.tokenizer = value;
    } else if (word == "--output") {
      options.output = value;
    } else if (word == "--key") {
      options.key = value;
    } else if (word == "--threads") {
      const char* end = value.data() + value.size();
      const auto [stop, error] = std::from_chars(value.data(), end, options.threads);
      if (error != std::errc() || stop != end) return std::nullopt;
    } else {
      return std::nullopt;
    }
  }
  return options;
}

}  // namespace

int RunDataTool(const std::vector<std::string>& words) {
  const bool prepare = !words.empty() && words[0] == "prepare";
  const auto options = prepare ? ParsePrepareOptions(words) : std::nullopt;
  if (!options || options->inputs.empty() || options->tokenizer.empty() ||
      options->output.empty()) {
    throw TrainError(ExitCode::kUsage,
                     "usage: dslaunch data prepare IN... --tokenizer FOLDER --output PREFIX");
  }
  const PrepareResult result = PrepareData(*options);
  std::string line = std::to_string(result.documents) + " documents, " +
                     std::to_string(result.tokens) + " tokens of " +
                     std::to_string(result.token_bytes) + " bytes are written to " +
                     options->output + ".bin and .idx";
  if (result.empty_documents > 0) {
    line += "; " + std::to_string(result.empty_documents) + " empty documents are left out";
  }
  PrintLine(SanitizeForTerminal(line));
  return ToInt(ExitCode::kOk);
}

}  // namespace dslaunch
