// Caches ssh_config for many hosts, so that few processes are needed to read it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "cli/transport/ssh/ssh_config.h"
#include "cli/transport/ssh/ssh_config_rules.h"

namespace dslaunch {

// Runs ssh (AskSsh) for one host of each class (SshConfigRules) and reuses the answer for the whole
// class for a minute. A thousand nodes that start together thus need one `ssh -G`. Thread-safe;
// concurrent requests for the same class wait for one answer.
class SshConfigs {
 public:
  // Returns the configuration for `target`. `config_file`, if not empty, replaces ssh's own files;
  // `ssh` is the program with its options, empty for ssh from PATH. Fails as AskSsh() and
  // ParseSshConfig() do.
  Result<SshConfig> Read(const NodeTarget& target, const std::string& config_file,
                         const std::vector<std::string>& ssh, Deadline deadline);

 private:
  struct Answer {
    std::string host;
    std::string dump;
  };
  // The answers for hosts that are requested with the same user, port and options.
  struct Scope {
    bool is_busy = false;  // true while a thread is running ssh; it will call Keep
    // Time of the first answer; nullopt before the first answer.
    std::optional<Clock::time_point> read_at;
    // Rules of ssh_config; nullopt if no hosts share a configuration.
    std::optional<SshConfigRules> rules;
    // The value is nullopt if each host of the class needs an answer of its own.
    std::map<std::string, std::optional<Answer>> by_class;
  };

  static std::optional<std::string> ClassOf(const Scope& scope, const std::string& host);
  // Returns the known answer. Returns nullopt if the caller must run ssh; the caller must then call
  // Keep with the result if `keeps` is set.
  std::optional<Result<std::string>> Find(const std::string& scope, const std::string& host,
                                          Deadline deadline, bool& keeps);
  void Keep(const std::string& scope, const std::string& host, const Result<SshDump>& dump);

  Mutex mutex_;
  CondVar changed_;
  std::map<std::string, Scope> scopes_ DSL_GUARDED_BY(mutex_);
};

}  // namespace dslaunch
