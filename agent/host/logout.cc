#include "agent/host/logout.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "base/deadline.h"
#include "base/os/accounts.h"
#include "base/os/child_watch.h"
#include "base/os/proc_text.h"
#include "base/os/subprocess.h"
#include "base/unique_fd.h"

namespace dslaunch {
namespace {

constexpr milliseconds kTryLimit(2000);
// Variable that is set when this program executes itself again, so that it does so only once.
constexpr const char* kLeftVariable = "DSLAUNCH_LEFT_SESSION";

std::string Trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())))
    text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())))
    text.remove_suffix(1);
  return std::string(text);
}

// Returns the texts of logind.conf and its drop-ins in the order in which they apply, by file name.
// If two drop-ins have one name, the one in /etc hides the other.
std::vector<std::string> LogindConfigurations() {
  std::vector<std::string> texts = {ReadWhole("/etc/systemd/logind.conf").value_or("")};
  std::vector<std::filesystem::path> drop_ins;
  for (const char* folder : {"/etc/systemd/logind.conf.d", "/run/systemd/logind.conf.d",
                             "/usr/lib/systemd/logind.conf.d"}) {
    std::error_code error;
    for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
      const std::filesystem::path name = entry->path().filename();
      const bool known =
          std::ranges::any_of(drop_ins, [&](const auto& path) { return path.filename() == name; });
      if (name.extension() == ".conf" && !known) drop_ins.push_back(entry->path());
    }
  }
  std::ranges::sort(drop_ins, {}, [](const auto& path) { return path.filename(); });
  for (const auto& path : drop_ins) texts.push_back(ReadWhole(path).value_or(""));
  return texts;
}

std::string FindSystemdRun() {
  std::istringstream folders(std::getenv("PATH") != nullptr ? std::getenv("PATH") : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string path = folder + "/systemd-run";
    if (folder.starts_with('/') && ::access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

// Returns whether the program exits with 0 within kTryLimit. Kills it if it takes longer.
bool Succeeds(const std::vector<std::string>& argv) {
  SpawnSpec spec;
  spec.executable = argv.front();
  spec.argv = argv;
  spec.env = CurrentEnvironment();
  spec.own_group = true;
  const SpawnResult spawned = Spawn(spec);
  if (spawned.pid < 0) return false;
  const bool ended = ChildWatch(spawned.pid).AwaitEnd(Deadline::After(kTryLimit));
  if (!ended) ::kill(-spawned.pid, SIGKILL);
  int status = -1;
  while (::waitpid(spawned.pid, &status, 0) < 0 && errno == EINTR) {
  }
  return ended && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

bool ParseKillUserProcesses(const std::vector<std::string>& logind_configurations) {
  bool kills = false;
  for (const std::string& text : logind_configurations) {
    std::istringstream lines(text);
    bool in_login = false;
    for (std::string raw; std::getline(lines, raw);) {
      const std::string line = Trimmed(raw);
      if (line.starts_with('[')) in_login = line == "[Login]";
      const size_t equals = line.find('=');
      if (!in_login || equals == std::string::npos ||
          Trimmed(line.substr(0, equals)) != "KillUserProcesses") {
        continue;
      }
      std::string value = Trimmed(line.substr(equals + 1));
      std::ranges::transform(value, value.begin(),
                             [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      kills = value == "yes" || value == "true" || value == "1" || value == "on";
    }
  }
  return kills;
}

bool IsInLoginSession(std::string_view cgroup) {
  const size_t session = cgroup.find("/session-");
  return session != std::string_view::npos &&
         cgroup.find(".scope", session) != std::string_view::npos;
}

bool IsInUserManager(std::string_view cgroup) {
  return cgroup.find("/user@") != std::string_view::npos;
}

LogoutInfo ReadLogoutInfo() {
  LogoutInfo info;
  info.kills = ParseKillUserProcesses(LogindConfigurations());
  const std::string cgroup = ReadWhole("/proc/self/cgroup").value_or("");
  info.in_session = IsInLoginSession(cgroup);
  info.in_manager = IsInUserManager(cgroup);
  const std::optional<Account> user = FindAccount(::geteuid());
  std::error_code error;
  info.lingers = user && std::filesystem::exists(
                             std::filesystem::path("/var/lib/systemd/linger") / user->name, error);
  return info;
}

bool ShouldLeaveSession(const LogoutInfo& info) { return info.kills && info.in_session; }

std::string LogoutWarning(const LogoutInfo& info, const std::string& node_name) {
  const bool ends = info.in_session || (info.in_manager && !info.lingers);
  if (!info.kills || !ends) return "";
  return node_name +
         ": logind ends a user's processes there at logout (KillUserProcesses=yes), this job too" +
         (info.lingers ? "; the agent could not leave the login session: check that systemd-run "
                         "--user works there"
                       : "; run loginctl enable-linger there, and start the job again");
}

void LeaveSession(char** argv) {
  if (std::getenv(kLeftVariable) != nullptr) {
    ::unsetenv(kLeftVariable);
    return;
  }
  const std::string systemd_run = FindSystemdRun();
  if (systemd_run.empty()) return;
  std::vector<std::string> words = {systemd_run, "--user", "--scope", "--quiet", "--collect", "--"};
  std::vector<std::string> attempt = words;
  attempt.push_back("/bin/true");
  if (!Succeeds(attempt)) return;
  std::error_code error;
  words.push_back(std::filesystem::read_symlink("/proc/self/exe", error));
  if (error) return;
  for (char** word = argv + 1; *word != nullptr; ++word) words.push_back(*word);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::setenv(kLeftVariable, "1", 1);
  ::execv(systemd_run.c_str(), pointers.data());
  ::unsetenv(kLeftVariable);
}

}  // namespace dslaunch
