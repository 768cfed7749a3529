// Detects whether a detached job survives the user's logout, and moves it out of the login session
// if not.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// The effect of a user's logout on this machine and this process.
struct LogoutInfo {
  bool kills = false;       // logind's KillUserProcesses is set
  bool in_session = false;  // this process belongs to a login session, which ends with the login
  bool in_manager = false;  // this process belongs to the user's service manager
  bool lingers = false;     // the user's service manager runs without any login
};

// Returns the value of KillUserProcesses after these files, in order. The last setting in a [Login]
// section applies; the default is no. Pure.
bool ParseKillUserProcesses(const std::vector<std::string>& logind_configurations);

// Return whether a process with this content of /proc/PID/cgroup belongs to a login session, or to
// a user's service manager. Pure.
bool IsInLoginSession(std::string_view cgroup);
bool IsInUserManager(std::string_view cgroup);

LogoutInfo ReadLogoutInfo();

// Returns whether the supervisor should leave the session for a scope of the user's service
// manager. It should only if staying would end the job: without KillUserProcesses a session lasts
// as long as its processes, whereas the manager of a user who does not linger ends all its
// processes with the user's last login.
bool ShouldLeaveSession(const LogoutInfo& info);

// Returns a sentence for the user if a logout would end the job, otherwise an empty string. Pure.
std::string LogoutWarning(const LogoutInfo& info, const std::string& node_name);

// Executes this program again with the same arguments in a scope of its own, if `systemd-run --user
// --scope` works here (tried for at most 2 s); returns otherwise. Precondition: the process has
// neither threads nor children.
void LeaveSession(char** argv);

}  // namespace dslaunch
