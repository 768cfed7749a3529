#include "cli/options/checkpoint_command.h"

#include <optional>
#include <utility>

#include "cli/options/command_parser.h"
#include "cli/options/help_text.h"
#include "cli/options/option_readers.h"

namespace dslaunch {
namespace {

using command_options::Flag;
using command_options::Help;
using command_options::Option;

constexpr Named<const char*> kDtypes[] = {{"bf16", "bf16"}, {"fp16", "fp16"}, {"fp32", "fp32"}};
constexpr Named<const char*> kCheckpointKinds[] = {{"safetensors", "safetensors"},
                                                   {"dslaunch", "dslaunch"},
                                                   {"deepspeed-universal", "deepspeed-universal"},
                                                   {"dcp", "dcp"}};

constexpr char kVerifyDetails[] =
    R"(Exit codes: 0; 65, something is damaged or no checkpoint; 64, the command line.)";

constexpr char kConvertDetails[] =
    R"(No pickle is run, and at most 64 MiB of a tensor are in memory at a time. The same command continues a conversion that was interrupted. `dslaunch help other-checkpoints` lists the forms that can be read. Exit codes: 0; 65, something is missing or damaged; 74, the disk is full; 64, the command line.)";

OptionSpec Dtype() {
  return Option("--dtype", "", "data type of the weights, in safetensors; default: as saved",
                kChoice<&CheckpointCommand::dtype, kDtypes>);
}

OptionSpec Force() {
  return Flag("--force", "overwrite files in OUT", kFlag<&CheckpointCommand::force>);
}

const OptionTable& NoOptions() {
  static const OptionTable table = {Help()};
  return table;
}

const OptionTable& JsonOptions() {
  static const OptionTable table = {
      Flag("--json", "print JSON, for programs", kFlag<&CheckpointCommand::json>), Help()};
  return table;
}

const OptionTable& ExportOptions() {
  static const OptionTable table = {
      Dtype(),
      Flag("--merge_lora",
           "of a run with lora: add the adapters to the weights that they were trained on, in "
           "fp32, and write these",
           kFlag<&CheckpointCommand::merge_lora>),
      Force(), Help()};
  return table;
}

const OptionTable& ConvertOptions() {
  static const OptionTable table = {
      Option("--to", "", "what to write; default: safetensors, the weights alone",
             kChoice<&CheckpointCommand::to, kCheckpointKinds>),
      Dtype(),
      Option("--prefix", "P", "drop P from the front of the tensors' names",
             kText<&CheckpointCommand::prefix>),
      Option("--key", "K", "key of the dict of weights in a file of torch.save: state_dict",
             kText<&CheckpointCommand::key>),
      Force(),
      Help()};
  return table;
}

}  // namespace

std::vector<CommandSpec> CheckpointCommands() {
  return {
      {.name = "checkpoint ls",
       .help =
           "lists the checkpoints in DIR, the oldest first: step, date, size, layout, loss, and "
           "whether all files are complete; or describes one of DeepSpeed or PyTorch",
       .arguments = {{"DIR", kFolder<&CheckpointCommand::path>,
                      "which folder? Give the one of --checkpoint_dir"}},
       .options = &JsonOptions(),
       .examples = {{"dslaunch checkpoint ls run1", "the checkpoints of --checkpoint_dir run1"},
                    {"dslaunch checkpoint ls checkpoint-500", "one of Trainer with DeepSpeed"}}},
      {.name = "checkpoint verify",
       .help = "reads every byte of the checkpoints in DIR, or of one, and names damaged files; of "
               "one of DeepSpeed or PyTorch, names files and parts that are missing",
       .details = kVerifyDetails,
       .arguments = {{"DIR", kFolder<&CheckpointCommand::path>,
                      "which checkpoint? Give one, or a folder of checkpoints"}},
       .options = &NoOptions(),
       .examples = {{"dslaunch checkpoint verify run1", "checks all of them"},
                    {"dslaunch checkpoint verify run1/step_000400", "checks one"}}},
      {.name = "checkpoint export",
       .help =
           "writes the weights of the checkpoint in FOLDER, or of the latest one of a run in "
           "FOLDER, "
           "in Hugging Face's format, as "
           "model.safetensors and config.json in OUT; of a run with lora the adapters in PEFT's",
       .details = kVerifyDetails,
       .arguments = {{"FOLDER", kFolder<&CheckpointCommand::path>,
                      "which checkpoint? Give its folder"},
                     {"OUT", kFolder<&CheckpointCommand::out>,
                      "where to? Give a folder after the checkpoint"}},
       .options = &ExportOptions(),
       .examples = {{"dslaunch checkpoint export run1/step_000400 hf --dtype bf16",
                     "weights for Hugging Face's transformers"},
                    {"dslaunch checkpoint export run1/step_000400 hf --merge_lora",
                     "a fine-tuned model without adapters"}}},
      {.name = "checkpoint convert",
       .help = "writes a checkpoint of DeepSpeed, PyTorch or dslaunch in another form; by default "
               "its weights as safetensors, with the config and tokenizer files beside it",
       .details = kConvertDetails,
       .arguments = {{"PATH", kFolder<&CheckpointCommand::path>,
                      "which checkpoint? Give its file or folder"},
                     {"OUT", kFolder<&CheckpointCommand::out>,
                      "where to? Give a folder after the checkpoint"}},
       .options = &ConvertOptions(),
       .examples = {{"dslaunch checkpoint convert checkpoint-500 hf --dtype bf16",
                     "weights of a ZeRO checkpoint for Hugging Face's transformers"},
                    {"dslaunch checkpoint convert checkpoint-500 run1 --to dslaunch",
                     "then: dslaunch train RECIPE --checkpoint_dir run1"},
                    {"dslaunch checkpoint convert run1/step_000400 u --to deepspeed-universal",
                     "for DeepSpeed's load_universal"}}},
      {.name = "checkpoint diff",
       .help = "compares two checkpoints of any kind: names, shapes, data types, and the largest "
               "difference in each tensor",
       .details =
           "Exit codes: 0, equal; 1, different; 65, one cannot be read; 64, the command line. "
           "State that only one of the two can have, such as the optimizer's, is not "
           "compared.",
       .arguments = {{"A", kFolder<&CheckpointCommand::path>,
                      "which checkpoints? Give two files or folders"},
                     {"B", kFolder<&CheckpointCommand::out>,
                      "compared with which? Give a second file or folder"}},
       .options = &JsonOptions(),
       .examples = {{"dslaunch checkpoint diff run1/step_000400 hf",
                     "whether an export has the same weights"}}},
  };
}

Result<CheckpointCommand> ParseCheckpointCommand(const std::vector<std::string>& words) {
  DSL_TRY_ASSIGN(const CommandSpec* command, FindCommand("checkpoint", words));
  CheckpointCommand help;
  help.help = command == nullptr ? CommandHelpText("checkpoint") : CommandHelpText(*command);
  if (command == nullptr) return help;
  DSL_TRY_ASSIGN(std::optional<ParsedFlags> flags, ParseCommand(*command, words, 2));
  if (!flags) return help;
  CheckpointCommand& checkpoint = flags->checkpoint;
  checkpoint.words = {std::string(ActionOf(*command)), checkpoint.path};
  if (!checkpoint.out.empty()) checkpoint.words.push_back(checkpoint.out);
  if (checkpoint.json) checkpoint.words.emplace_back("--json");
  const std::pair<const char*, const std::string&> options[] = {{"--to", checkpoint.to},
                                                                {"--dtype", checkpoint.dtype},
                                                                {"--prefix", checkpoint.prefix},
                                                                {"--key", checkpoint.key}};
  for (const auto& [name, value] : options) {
    if (!value.empty()) checkpoint.words.insert(checkpoint.words.end(), {name, value});
  }
  if (checkpoint.merge_lora) checkpoint.words.emplace_back("--merge_lora");
  if (checkpoint.force) checkpoint.words.emplace_back("--force");
  return std::move(checkpoint);
}

}  // namespace dslaunch
