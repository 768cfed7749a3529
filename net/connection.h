// What every TCP connection between two machines of a job has in common.
#pragma once

namespace dslaunch {

// No delay, and a machine that is gone is noticed in time.
void SetConnectionOptions(int fd);

}  // namespace dslaunch
