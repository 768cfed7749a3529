// Formats failed system calls for users.
#pragma once

#include <string>

namespace dslaunch {

// Returns strerror() of `error_number`. If the system ran out of a resource, adds the limit and the
// setting that raises the limit: "Too many open files (limit 1024; raise it: ulimit -n)".
std::string ErrnoText(int error_number);

}  // namespace dslaunch
