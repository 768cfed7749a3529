#include "cli/transport/ssh/ssh_configs.h"

#include <utility>

#include "base/os/proc_text.h"

namespace dslaunch {
namespace {

constexpr milliseconds kServesFor(60'000);

// Returns a key of all inputs, apart from the host, that affect the result of ssh_config.
std::string ScopeOf(const NodeTarget& target, const std::string& config_file,
                    const std::vector<std::string>& ssh) {
  std::string scope = config_file + '\0' + std::to_string(target.port) + '\0' + target.user;
  for (const std::string& word : ssh) scope += '\0' + word;
  return scope;
}

// Returns the rules of the files that `verbose`, the stderr of `ssh -v`, names; nullopt if a file
// cannot be read.
std::optional<SshConfigRules> RulesOf(const std::string& verbose) {
  const std::vector<std::string> files = FilesThatSshReads(verbose);
  std::vector<std::string> texts;
  for (const std::string& file : files) {
    std::optional<std::string> text = ReadWhole(file);
    if (!text) return std::nullopt;
    texts.push_back(*std::move(text));
  }
  if (files.empty()) return std::nullopt;
  return SshConfigRules(texts);
}

}  // namespace

Result<SshConfig> SshConfigs::Read(const NodeTarget& target, const std::string& config_file,
                                   const std::vector<std::string>& ssh, Deadline deadline) {
  const std::string scope = ScopeOf(target, config_file, ssh);
  bool keeps = false;
  if (const auto found = Find(scope, target.host, deadline, keeps)) {
    if (!found->ok()) return found->error();
    return ParseSshConfig(**found, target, ThisAccount());
  }
  const Result<SshDump> dump = AskSsh(target, config_file, ssh, deadline);
  if (keeps) Keep(scope, target.host, dump);
  if (!dump.ok()) return dump.error();
  if (dump->text.empty()) return DefaultSshConfig(target, ThisAccount());
  return ParseSshConfig(dump->text, target, ThisAccount());
}

std::optional<std::string> SshConfigs::ClassOf(const Scope& scope, const std::string& host) {
  return scope.rules ? scope.rules->ClassOf(host) : std::nullopt;
}

std::optional<Result<std::string>> SshConfigs::Find(const std::string& scope,
                                                    const std::string& host, Deadline deadline,
                                                    bool& keeps) {
  const MutexLock lock(mutex_);
  while (true) {
    Scope& known = scopes_[scope];
    if (!known.is_busy && known.read_at && *known.read_at + kServesFor < Clock::now())
      known = Scope();
    if (known.read_at) {
      const std::optional<std::string> of_class = ClassOf(known, host);
      if (!of_class) return std::nullopt;
      if (const auto found = known.by_class.find(*of_class); found != known.by_class.end()) {
        if (!found->second) return std::nullopt;
        std::optional<std::string> dump = DumpFor(host, found->second->dump, found->second->host);
        if (!dump) return std::nullopt;
        return *std::move(dump);
      }
    }
    if (!known.is_busy) {
      keeps = known.is_busy = true;
      return std::nullopt;
    }
    if (deadline.Expired()) {
      return Error{ExitCode::kTimedOut,
                   "ssh_config cannot be read: `ssh -G`, which another node waits for too, did not "
                   "end in time"};
    }
    changed_.WaitUntil(mutex_, deadline.when());
  }
}

void SshConfigs::Keep(const std::string& scope, const std::string& host,
                      const Result<SshDump>& dump) {
  std::optional<SshConfigRules> rules;
  if (dump.ok()) rules = RulesOf(dump->verbose);
  const MutexLock lock(mutex_);
  Scope& known = scopes_[scope];
  known.is_busy = false;
  changed_.NotifyAll();
  if (!dump.ok()) return;  // the next caller runs ssh again
  // Files may have changed since the first reading, so only rules and answers from one reading are
  // combined.
  if (!known.read_at) {
    known.rules = std::move(rules);
    known.read_at = Clock::now();
  }
  if (const std::optional<std::string> of_class = ClassOf(known, host)) {
    known.by_class[*of_class] =
        DumpFor(host, dump->text, host) ? std::optional<Answer>({host, dump->text}) : std::nullopt;
  }
}

}  // namespace dslaunch
