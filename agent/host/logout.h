// Detects whether a detached job survives the user's logout. If not, moves the job out of the login
// session.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// The effect of a user's logout on this machine and this process.
struct LogoutInfo {
  bool kills = false;       // whether logind's KillUserProcesses is set
  bool in_session = false;  // whether this process is in a session that ends with the login
  bool in_manager = false;  // whether this process belongs to the user's service manager
  bool lingers = false;     // whether the user's service manager runs without any login
};

// Returns the value of KillUserProcesses after reading the texts in order. The last setting in a
// [Login] section applies; the default is "no".
bool ParseKillUserProcesses(const std::vector<std::string>& logind_configurations);

// Returns whether a process with this content of /proc/PID/cgroup belongs to a login session.
bool IsInLoginSession(std::string_view cgroup);
// Returns whether a process with this content of /proc/PID/cgroup belongs to a user's service
// manager.
bool IsInUserManager(std::string_view cgroup);

LogoutInfo ReadLogoutInfo();

// Returns whether the supervisor should leave the session for a scope of the user's service
// manager. It should leave only if the session would end the job. Without KillUserProcesses, a
// session lasts as long as its processes. The service manager of a user who does not linger ends
// all its processes with the user's last login.
bool ShouldLeaveSession(const LogoutInfo& info);

// Returns a warning for the user if a logout would end the job; otherwise an empty string.
std::string LogoutWarning(const LogoutInfo& info, const std::string& node_name);

// Executes this program again with the same arguments in a scope of its own, if `systemd-run --user
// --scope` works on this machine (tried for at most 2 s). Returns if that does not work, or if this
// process already runs in such a scope. Precondition: the process has neither other threads nor
// children.
void LeaveSession(char** argv);

}  // namespace dslaunch
