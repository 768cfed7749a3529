// Whether a process serves others, such as a daemon that keeps shared memory for ranks: it listens
// on a socket. Such a process may need some time to notice that the others are gone.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <set>
#include <string_view>

namespace dslaunch {

// The inodes of sockets that listen, by the content of /proc/net/unix. Pure.
std::set<uint64_t> ListeningUnixSockets(std::string_view net_unix);

// The same by the content of /proc/net/tcp or tcp6. Pure.
std::set<uint64_t> ListeningTcpSockets(std::string_view net_tcp);

// False also where this process may not see the other one's descriptors.
bool Serves(pid_t pid);

}  // namespace dslaunch
