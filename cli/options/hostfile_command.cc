#include "cli/options/hostfile_command.h"

#include <CLI/CLI.hpp>
#include <optional>

#include "base/suggest.h"
#include "cli/options/command_words.h"
#include "cli/options/option_values.h"

namespace dslaunch {
namespace {

constexpr char kHelp[] =
    R"(dslaunch hostfile write (--hosts a,b,c | --slurm | --ssh_config) [--output FILE] [--force]
                        [--skip_failing] [--connect_timeout S]
    asks every node over SSH for its GPUs, or its cores where it has none, and writes a line
    'NAME slots=N' for each, to stdout or to FILE (in YAML if it ends with .yaml or .yml)
      --hosts a,u@b,c:2222   these nodes
      --slurm                those of the allocation that this runs in
      --ssh_config           the hosts of ~/.ssh/config that are no patterns
      --force                overwrites FILE
      --skip_failing         leaves out nodes that cannot be reached; else they are all named
                             and nothing is written

dslaunch hostfile check FILE [--json] [--connect_timeout S]
    reads FILE, asks all its nodes at once, and shows what each has; ends with 69 when one cannot
    be reached, and with 65 when one has fewer GPUs than slots
)";

Error Usage(const std::string& command, const std::string& what) {
  return {ExitCode::kUsage, command + ": " + what + (what.back() == '?' ? " See" : "; see") +
                                " dslaunch hostfile --help"};
}

// The names between commas.
std::vector<std::string> SplitNames(const std::string& list) {
  std::vector<std::string> names;
  for (size_t begin = 0;;) {
    const size_t comma = list.find(',', begin);
    names.push_back(list.substr(begin, comma - begin));
    if (comma == std::string::npos) return names;
    begin = comma + 1;
  }
}

}  // namespace

Result<HostfileCommand> ParseHostfileCommand(const std::vector<std::string>& words) {
  HostfileCommand command;
  command.text = kHelp;
  const std::string verb = words.size() > 1 ? words[1] : "";
  if (verb == "--help" || verb == "-h") return command;
  if (verb != "write" && verb != "check") {
    const std::string near = Nearest(verb, {"write", "check"});
    return Usage("hostfile",
                 verb.empty() ? "what is to be done? write or check"
                 : near.empty()
                     ? Quoted(verb) + " is not known; it does write and check"
                     : "unknown command " + Quoted(verb) + ", did you mean " + near + "?");
  }
  const std::string name = "hostfile " + verb;
  CLI::App app;
  bool help = false;
  bool slurm = false;
  bool ssh_config = false;
  std::optional<std::string> hosts, timeout;
  app.set_help_flag();
  app.add_flag("-h,--help", help);
  app.add_option("--connect_timeout", timeout);
  if (verb == "write") {
    app.add_option("--hosts", hosts);
    app.add_flag("--slurm", slurm);
    app.add_flag("--ssh_config", ssh_config);
    app.add_option("-o,--output", command.output);
    app.add_flag("--force", command.force);
    app.add_flag("--skip_failing", command.skip_failing);
  } else {
    app.add_option("FILE", command.file);
    app.add_flag("--json", command.json);
  }
  std::vector<std::string> rest;
  for (size_t i = words.size(); i > 2; --i) rest.push_back(WithUnderscores(words[i - 1]));
  try {
    app.parse(std::move(rest));  // in reverse, as CLI11 wants them
    if (timeout)
      command.connect_timeout_ms = ReadSecondsAsMs("--connect_timeout", *timeout, 0.1, 86'400);
  } catch (const CLI::ExtrasError&) {
    return Usage(name, DescribeExtra(app));
  } catch (const CLI::Error& error) {
    return Usage(name, error.what());
  }
  if (help) return command;
  if (verb == "check") {
    command.kind = HostfileCommand::Kind::kCheck;
    if (command.file.empty()) return Usage(name, "which file? Give its name");
    return command;
  }
  command.kind = HostfileCommand::Kind::kWrite;
  if (int{hosts.has_value()} + int{slurm} + int{ssh_config} != 1)
    return Usage(name, "say once where the nodes are: --hosts a,b,c, --slurm or --ssh_config");
  command.source = slurm        ? HostfileCommand::Source::kSlurm
                   : ssh_config ? HostfileCommand::Source::kSshConfig
                                : HostfileCommand::Source::kHosts;
  if (hosts) command.hosts = SplitNames(*hosts);
  if (command.force && command.output.empty())
    return Usage(name, "--force overwrites a file; add --output FILE");
  return command;
}

}  // namespace dslaunch
