// Detects by its listening sockets whether a process serves others, such as a daemon that stores
// shared memory for ranks. Such a process may need some time to notice that its clients have
// exited.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <set>
#include <string_view>

namespace dslaunch {

// Returns the inodes of listening sockets in the content of /proc/net/unix. Pure.
std::set<uint64_t> ListeningUnixSockets(std::string_view net_unix);

// Returns the inodes of listening sockets in the content of /proc/net/tcp or tcp6. Pure.
std::set<uint64_t> ListeningTcpSockets(std::string_view net_tcp);

// Returns whether the process listens on a socket; false if this process may not read its
// descriptors.
bool Serves(pid_t pid);

}  // namespace dslaunch
