#include "cli/options/command_data.h"

#include "cli/options/option_table.h"

namespace dslaunch {
namespace {

OptionData DataOf(const OptionSpec& spec, bool of_launch) {
  OptionData data;
  data.names = NamesOf(spec);
  data.placeholder = PlaceholderOf(spec);
  data.kind = Name(spec.target.kind);
  data.choices = ChoicesOf(spec);
  data.default_value = spec.default_value;
  data.help = spec.help;
  data.group = Title(spec.group);
  data.refusal = spec.refusal == nullptr ? "" : spec.refusal;
  data.variable = VariableOf(spec);
  data.in_launch_file = of_launch && !spec.line_only && spec.refusal == nullptr;
  data.from_deepspeed = spec.deepspeed;
  data.from_torchrun = spec.torchrun;
  data.from_horovod = spec.horovod;
  data.from_accelerate = spec.accelerate;
  data.is_common = spec.common;
  data.is_repeatable = spec.repeatable;
  return data;
}

}  // namespace

std::vector<CommandData> AllCommands() {
  std::vector<CommandData> all;
  for (const CommandSpec& command : Commands()) {
    CommandData& data = all.emplace_back();
    data.name = command.name;
    data.usage = UsageOf(command);
    data.help = command.help;
    data.details = command.details;
    for (const Example& example : command.examples)
      data.examples.emplace_back(example.command, example.what);
    const bool is_launch = data.name.empty();
    data.takes_launch_options = !is_launch && command.options == &LaunchOptionTable();
    if (data.takes_launch_options) continue;
    for (const OptionSpec& spec : *command.options) data.options.push_back(DataOf(spec, is_launch));
  }
  return all;
}

}  // namespace dslaunch
