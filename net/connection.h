// Sets the options of every TCP connection between two machines of a job.
#pragma once

namespace dslaunch {

// Disables Nagle's algorithm and sets timeouts that detect a dead peer.
void SetConnectionOptions(int fd);

}  // namespace dslaunch
