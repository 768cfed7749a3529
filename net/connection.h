// Sets the options of every TCP connection between two machines of a job.
#pragma once

namespace dslaunch {

// Disables Nagle's algorithm and sets timeouts after which a connection to a dead peer fails.
void SetConnectionOptions(int fd);

}  // namespace dslaunch
