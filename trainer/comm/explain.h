// What error texts of the libraries mean to a user.
#pragma once

#include <string_view>

namespace dslaunch {

enum class CommFailure {
  kNone,      // not a communication error
  kPeerLost,  // another rank is gone; it, not this one, is the cause
  kTimedOut,  // another rank did not answer in time
};

// Reads the texts of Gloo's and c10d's exceptions, which have no codes.
CommFailure ClassifyCommFailure(std::string_view what);

// Whether an exception's text says that memory could not be had.
bool IsOutOfMemory(std::string_view what);

}  // namespace dslaunch
