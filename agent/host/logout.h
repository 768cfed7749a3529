// Whether a detached job outlives the user's logout, and what is done about it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// What a node does when a user logs out, and where this process is seen from that.
struct LogoutInfo {
  bool kills = false;       // logind's KillUserProcesses
  bool in_session = false;  // this process belongs to a login session, which ends with the login
  bool in_manager = false;  // it belongs to the user's service manager
  bool lingers = false;     // that manager runs without any login
};

// KillUserProcesses after these files in order; the last word in a [Login] section counts, the
// default is no. Pure.
bool ParseKillUserProcesses(const std::vector<std::string>& logind_configurations);

// Whether the process with this content of /proc/PID/cgroup is part of a login session, or of a
// user's service manager. Pure.
bool IsInLoginSession(std::string_view cgroup);
bool IsInUserManager(std::string_view cgroup);

LogoutInfo ReadLogoutInfo();

// Whether the supervisor should leave the session for a scope of the user's service manager. Only
// where staying would end the job: without KillUserProcesses a session stays as long as its
// processes, while the manager ends all that it has when the last login of a user who does not
// linger does.
bool ShouldLeaveSession(const LogoutInfo& info);

// The sentence for the user when a logout would end the job; empty when it would not. Pure.
std::string LogoutWarning(const LogoutInfo& info, const std::string& node_name);

// Executes this program again with the same arguments in a scope of its own, if `systemd-run
// --user --scope` works here (a try has 2 s). Returns when it does not. Call it before the process
// has threads or children.
void LeaveSession(char** argv);

}  // namespace dslaunch
