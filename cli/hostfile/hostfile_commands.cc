#include "cli/hostfile/hostfile_commands.h"

#include <unistd.h>

#include <cstdlib>

#include "agent/accelerators/accelerators.h"
#include "base/count.h"
#include "base/os/put_file.h"
#include "cli/commands/node_inspection.h"
#include "cli/core/connect_failures.h"
#include "cli/hostfile/hostfile_report.h"
#include "cli/hostfile/hostfile_sources.h"
#include "cli/output/print_text.h"
#include "cli/plan/plan_info.h"
#include "cli/transport/agent_binary.h"
#include "cli/transport/ssh/transport_ssh.h"

namespace dslaunch {
namespace {

constexpr milliseconds kTryLibraries(5'000);  // limit for the driver's libraries on each node
constexpr milliseconds kAnswer(10'000);       // limit for the answer after the node was reached

AskedHost Ask(const Host& host, Launcher launcher, const SshOptions& ssh, const AgentBinary& agent,
              Deadline connected) {
  AskedHost asked;
  asked.host = host;
  const NodeWay way{launcher, host, ssh};
  const Result<std::unique_ptr<NodeInspection>> inspection =
      NodeInspection::Open(way, agent, connected);
  if (!inspection.ok()) {
    asked.failure = inspection.error();
    return asked;
  }
  pb::NodeInfoRequest request;
  request.set_patience_ms(static_cast<uint32_t>(kTryLibraries.count()));
  const Result<pb::NodeInfo> report =
      RequestNodeInfo(**inspection, host.name, request, Deadline::After(kAnswer));
  (*inspection)->End();
  (void)(*inspection)->WaitEnd(Deadline::After(kLeaveTimeout));
  if (!report.ok()) {
    asked.failure = report.error();
    return asked;
  }
  asked.gpus = static_cast<int>(report->gpus().visible());
  if (report->gpus().installed_size() > 0) asked.gpu_name = report->gpus().installed(0).name();
  asked.gpu_noun = RowOf(report->gpus().device()).noun;
  asked.cores = static_cast<int>(report->cores());
  asked.memory_bytes = report->memory_bytes();
  return asked;
}

Result<std::vector<AskedHost>> AskHosts(const std::vector<Host>& hosts,
                                        const HostfileCommand& command) {
  const milliseconds timeout(command.connect_timeout_ms);
  DSL_TRY_ASSIGN(const AgentBinary agent, FindAgentBinary());
  DSL_TRY_ASSIGN(const SshOptions ssh, MakeSshOptions(command.ssh_command));
  const bool is_here = hosts.size() == 1 && IsThisMachine(hosts.front().host, hosts.front().port,
                                                          hosts.front().user, ReadPlanInfo());
  const Launcher launcher = is_here ? Launcher::kLocal : Launcher::kSsh;
  const Deadline connected = Deadline::After(timeout);
  const Deadline all = Deadline::After(timeout + kAnswer + kLeaveTimeout);
  const auto answers =
      AskAll<AskedHost>(hosts.size(), all, [hosts, launcher, ssh, agent, connected](size_t i) {
        return Ask(hosts[i], launcher, ssh, agent, connected);
      });
  std::vector<AskedHost> asked;
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (answers[i]) {
      asked.push_back(*answers[i]);
      continue;
    }
    asked.emplace_back();
    asked.back().host = hosts[i];
    asked.back().failure =
        Error{ExitCode::kTimedOut, "node '" + hosts[i].name + "' did not answer in time"};
  }
  return asked;
}

// Prints all failures and returns the exit code of the first failure; 0 if there is none.
int PrintFailures(const std::vector<AskedHost>& hosts, Terminal& terminal) {
  int exit_code = ToInt(ExitCode::kOk);
  std::vector<NodeFailure> failures;
  for (const AskedHost& asked : hosts) {
    if (!asked.failure) continue;
    if (failures.empty()) exit_code = ToInt(asked.failure->code);
    failures.push_back({asked.host.name, asked.host.host, asked.failure->message});
  }
  for (const std::string& line : FoldFailures(failures)) terminal.Err("dslaunch: " + line);
  return exit_code;
}

Result<std::vector<Host>> FindHosts(const HostfileCommand& command) {
  switch (command.source) {
    case HostfileCommand::Source::kSlurm: {
      DSL_TRY_ASSIGN(const std::vector<std::string> names,
                     SlurmNodes([](const char* name) { return std::getenv(name); }));
      return HostsFromNames(names, "--slurm");
    }
    case HostfileCommand::Source::kSshConfig: {
      const char* const home = std::getenv("HOME");
      DSL_TRY_ASSIGN(const std::vector<std::string> names,
                     SshConfigHosts(home != nullptr ? home : ""));
      return HostsFromNames(names, "--ssh_config");
    }
    case HostfileCommand::Source::kHosts:
      break;
  }
  return HostsFromNames(command.hosts, "--hosts");
}

Result<int> Write(const HostfileCommand& command, Terminal& terminal) {
  DSL_TRY_ASSIGN(const std::vector<Host> hosts, FindHosts(command));
  // If the output file exists, the nodes' answers would be useless, so the file is checked before
  // the nodes are asked.
  if (!command.output.empty() && !command.force && ::access(command.output.c_str(), F_OK) == 0)
    return FileInTheWay(command.output);
  DSL_TRY_ASSIGN(std::vector<AskedHost> asked, AskHosts(hosts, command));
  const int failed = PrintFailures(asked, terminal);
  std::erase_if(asked, [](const AskedHost& host) { return host.failure.has_value(); });
  const size_t failures = hosts.size() - asked.size();
  if (failed != 0 && (!command.skip_failing || asked.empty())) {
    terminal.Err("dslaunch: nothing was written (" + std::to_string(failures) + " of " +
                 Count(hosts.size(), "node") + " failed)" +
                 (asked.empty() ? "" : "; --skip_failing leaves them out"));
    return failed;
  }
  const std::string& path = command.output;
  const bool yaml = path.ends_with(".yaml") || path.ends_with(".yml");
  const std::string text = WriteHostfileText(asked, yaml);
  if (path.empty()) {
    DSL_TRY(PrintText(text));
    return ToInt(ExitCode::kOk);
  }
  DSL_TRY(PutFile(path, text, command.force));
  terminal.Err("dslaunch: wrote " + path + ", " + Count(asked.size(), "node") +
               (failures == 0 ? "" : " without the " + std::to_string(failures) + " that failed"));
  return ToInt(ExitCode::kOk);
}

Result<int> Check(const HostfileCommand& command, Terminal& terminal) {
  DSL_TRY_ASSIGN(const std::vector<Host> hosts, ReadHostfile(command.file));
  DSL_TRY_ASSIGN(const std::vector<AskedHost> asked, AskHosts(hosts, command));
  DSL_TRY(PrintText(command.json ? HostsJson(command.file, asked) : HostTable(asked)));
  const int failed = PrintFailures(asked, terminal);
  bool has_problem = false;
  for (const AskedHost& host : asked) {
    const std::string problem = SlotProblem(host);
    if (problem.empty()) continue;
    has_problem = true;
    terminal.Err("dslaunch: " + command.file + ":" + std::to_string(host.host.line) + ": '" +
                 host.host.name + "': " + problem +
                 "; lower slots there, or run its ranks with --device cpu");
  }
  return failed != 0 ? failed : ToInt(has_problem ? ExitCode::kBadInput : ExitCode::kOk);
}

}  // namespace

Result<int> RunHostfileCommand(const HostfileCommand& command, Terminal& terminal) {
  switch (command.kind) {
    case HostfileCommand::Kind::kWrite:
      return Write(command, terminal);
    case HostfileCommand::Kind::kCheck:
      return Check(command, terminal);
    case HostfileCommand::Kind::kHelp:
      break;
  }
  terminal.Out(command.text);
  return ToInt(ExitCode::kOk);
}

}  // namespace dslaunch
