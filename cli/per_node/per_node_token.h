// The secret that the commands of a per-node job share.
#pragma once

#include <optional>
#include <string>

#include "base/error.h"

namespace dslaunch {

inline constexpr size_t kMinTokenBytes = 32;  // 128 random bits as hex digits
inline constexpr size_t kMaxTokenBytes = 4096;

// The variable with the number of a descriptor from which this process reads the token, for users
// who do not want it in a file.
inline constexpr char kTokenFdVariable[] = "DSLAUNCH_RDZV_TOKEN_FD";

// Returns the content of `file` without the line's end. Without a file, reads the descriptor that
// `fd_variable`, the value of kTokenFdVariable, names, and closes it. Returns nullopt if neither is
// given. Fails with kBadInput if it cannot be read, can be guessed, or is in a file that others may
// read. The token's digest is sent in clear text, so anybody on the network can check guesses
// against it.
Result<std::optional<std::string>> ReadToken(const std::optional<std::string>& file,
                                             const char* fd_variable);

// Returns the path of a token for commands that share a folder of the user's and were given none:
// the first makes it in the file `name`, readable by the user alone; the others find it there. kIo.
Result<std::string> ShareToken(const std::string& folder, const std::string& name);

// A command that makes a good token in FILE, for messages.
inline constexpr char kMakeToken[] = "(umask 077; openssl rand -hex 32 > FILE)";

}  // namespace dslaunch
