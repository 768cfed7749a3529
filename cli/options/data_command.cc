#include "cli/options/data_command.h"

#include <optional>
#include <utility>

#include "cli/options/command_parser.h"
#include "cli/options/help_text.h"
#include "cli/options/option_readers.h"

namespace dslaunch {

const char kDataPrepareDetails[] =
    R"(A file that ends in .json, .jsonl or .ndjson has a JSON object in each line, and a document in each object; any other file is text (UTF-8) and one document. FOLDER is that of a Hugging Face model: tokenizer.json (byte pair encoding) and tokenizer_config.json, whose eos_token ends each document.
The files are Megatron's, with a sequence for each document. They do not depend on the number of threads. Memory does not grow with the input.
Exit codes: 0; 65, the input or the tokenizer cannot be used; 74, a file cannot be read or written; 64, the command line.)";

const OptionTable& DataPrepareOptions() {
  using command_options::Flag;
  using command_options::Help;
  using command_options::Option;
  static const OptionTable table = {
      Option("--tokenizer", "FOLDER", "folder of tokenizer.json; required",
             kFolder<&DataCommand::tokenizer>),
      Option("-o,--output", "PREFIX", "what the names of both files begin with; required",
             kFile<&DataCommand::output>),
      Option("--key", "NAME", "key of the text in a line of JSON; default: text",
             kText<&DataCommand::key>),
      Option("--threads", "N", "number of threads; default: one for each core",
             kWhole<&DataCommand::threads, 1, 1024>),
      Flag("--force", "replace PREFIX.bin and PREFIX.idx", kFlag<&DataCommand::force>),
      Help()};
  return table;
}

Result<DataCommand> ParseDataCommand(const std::vector<std::string>& words) {
  DSL_TRY_ASSIGN(const CommandSpec* command, FindCommand("data", words));
  DataCommand help;
  help.help = command == nullptr ? CommandHelpText("data") : CommandHelpText(*command);
  if (command == nullptr) return help;
  DSL_TRY_ASSIGN(std::optional<ParsedFlags> flags, ParseCommand(*command, words, 2));
  if (!flags) return help;
  DataCommand& data = flags->data;
  if (data.tokenizer.empty()) {
    return UsageError("data prepare: which tokenizer? Give its folder with --tokenizer",
                      "dslaunch data --help");
  }
  if (data.output.empty()) {
    return UsageError("data prepare: where to? Give --output PREFIX", "dslaunch data --help");
  }
  data.words = {std::string(ActionOf(*command)), "--tokenizer", data.tokenizer, "--output",
                data.output};
  if (!data.key.empty()) data.words.insert(data.words.end(), {"--key", data.key});
  if (data.threads > 0) {
    data.words.insert(data.words.end(), {"--threads", std::to_string(data.threads)});
  }
  if (data.force) data.words.emplace_back("--force");
  data.words.emplace_back("--");
  data.words.insert(data.words.end(), data.inputs.begin(), data.inputs.end());
  return std::move(data);
}

}  // namespace dslaunch
