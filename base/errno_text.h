// What a failed system call says, for a sentence that users read.
#pragma once

#include <string>

namespace dslaunch {

// As strerror(); where the system has run out of something, with the limit that says how much there
// is: "Too many open files (limit 1024: ulimit -n)".
std::string ErrnoText(int error_number);

}  // namespace dslaunch
