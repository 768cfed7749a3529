// What ssh_config says about many hosts, by few processes.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "cli/transport/ssh_config.h"
#include "cli/transport/ssh_config_rules.h"

namespace dslaunch {

// Asks ssh (AskSsh) for one host of each class (SshConfigRules). Its answer serves the others of
// the class for a minute: a thousand nodes that start together take one `ssh -G` instead of a
// thousand. Thread-safe; who asks while the answer is on its way waits for it.
class SshConfigs {
 public:
  // What ssh_config says about `target`; the other arguments and errors are AskSsh's.
  Result<SshConfig> Read(const NodeTarget& target, const std::string& config_file,
                         const std::vector<std::string>& ssh, Deadline deadline);

 private:
  struct Answer {
    std::string host;
    std::string dump;
  };
  // Of hosts that are asked for in the same way.
  struct Scope {
    bool is_busy = false;                                   // somebody asks, and will tell
    std::optional<Clock::time_point> read_at;               // nullopt: not read yet
    std::optional<SshConfigRules> rules;                    // nullopt: none share
    std::map<std::string, std::optional<Answer>> by_class;  // nullopt: each has its own
  };

  static std::optional<std::string> ClassOf(const Scope& scope, const std::string& host);
  // nullopt: the caller asks, and says what came of it by Keep where `keeps`.
  std::optional<Result<std::string>> Find(const std::string& scope, const std::string& host,
                                          Deadline deadline, bool& keeps);
  void Keep(const std::string& scope, const std::string& host, const Result<SshDump>& dump);

  Mutex mutex_;
  CondVar changed_;
  std::map<std::string, Scope> scopes_ DSL_GUARDED_BY(mutex_);
};

}  // namespace dslaunch
