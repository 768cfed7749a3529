// Sets the options of every TCP connection between two machines of a job.
#pragma once

namespace dslaunch {

// Disables Nagle's algorithm. Sets timeouts after which a connection to a dead peer fails: 30 s if
// idle (keepalive), 60 s with unacknowledged data. Ignores errors.
void SetConnectionOptions(int fd);

}  // namespace dslaunch
