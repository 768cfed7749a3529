#include "cli/options/hostfile_command.h"

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

OptionSpec ConnectTimeout() {
  OptionSpec spec = Option("--connect_timeout", "S", "seconds to reach all nodes",
                           kSeconds<&HostfileCommand::connect_timeout_ms, 100>);
  spec.default_value = "20";
  return spec;
}

OptionSpec HostfileSsh() {
  OptionSpec spec =
      Option("--ssh_command", "'ssh ...'", "use the system's ssh instead of the built-in client",
             ReadCommand<&HostfileCommand::ssh_command>);
  spec.needs_trust = kRunsCode;
  return spec;
}

template <HostfileCommand::Source source>
void ReadSource(const FlagValue&, ParsedFlags& flags) {
  flags.hostfile.source = source;
}

}  // namespace

const OptionTable& HostfileWriteOptions() {
  using Source = HostfileCommand::Source;
  static const OptionTable table = {
      Option("--hosts", "a,u@b,c:2222", "names of the nodes",
             [](const FlagValue& given, ParsedFlags& flags) {
               flags.hostfile.source = Source::kHosts;
               flags.hostfile.hosts = ReadList(given.text);
             }),
      Flag("--slurm", "take the nodes of the current Slurm allocation",
           {ReadSource<Source::kSlurm>, ValueKind::kFlag}),
      Flag("--ssh_config", "take the hosts of ~/.ssh/config that are not patterns",
           {ReadSource<Source::kSshConfig>, ValueKind::kFlag}),
      Option("-o,--output", "FILE", "output file; YAML if it ends with .yaml or .yml",
             kFile<&HostfileCommand::output>),
      Flag("--force", "overwrite the file", kFlag<&HostfileCommand::force>),
      Flag("--skip_failing",
           "leave out nodes that cannot be reached; otherwise they are listed and nothing is "
           "written",
           kFlag<&HostfileCommand::skip_failing>),
      ConnectTimeout(),
      HostfileSsh(),
      Help()};
  return table;
}

const OptionTable& HostfileCheckOptions() {
  static const OptionTable table = {
      Flag("--json", "print JSON, for programs", kFlag<&HostfileCommand::json>), ConnectTimeout(),
      HostfileSsh(), Help()};
  return table;
}

Result<HostfileCommand> ParseHostfileCommand(const std::vector<std::string>& words) {
  DSL_TRY_ASSIGN(const CommandSpec* command, FindCommand("hostfile", words));
  HostfileCommand help;
  help.text = command == nullptr ? CommandHelpText("hostfile") : CommandHelpText(*command);
  if (command == nullptr) return help;
  DSL_TRY_ASSIGN(std::optional<ParsedFlags> flags, ParseCommand(*command, words, 2));
  if (!flags) return help;
  HostfileCommand& hostfile = flags->hostfile;
  if (ActionOf(*command) == "check") {
    hostfile.kind = HostfileCommand::Kind::kCheck;
    return std::move(hostfile);
  }
  hostfile.kind = HostfileCommand::Kind::kWrite;
  const auto given = [&](const char* name) { return flags->given.contains(name) ? 1 : 0; };
  if (given("--hosts") + given("--slurm") + given("--ssh_config") != 1) {
    return UsageError(
        "hostfile write: give the nodes in exactly one way: --hosts a,b,c, --slurm or --ssh_config",
        "dslaunch hostfile --help");
  }
  return std::move(hostfile);
}

}  // namespace dslaunch
