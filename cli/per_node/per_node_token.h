// Reads and creates the secret token that the commands of a per-node job share.
#pragma once

#include <optional>
#include <string>

#include "base/error.h"

namespace dslaunch {

// Least length of a token: 128 random bits as hex digits.
inline constexpr size_t kMinTokenBytes = 32;
inline constexpr size_t kMaxTokenBytes = 4096;

// The environment variable with the number of a descriptor from which this process reads the token,
// for users who do not want the token in a file.
inline constexpr char kTokenFdVariable[] = "DSLAUNCH_RDZV_TOKEN_FD";

// Returns the content of `file` without the line end. Without a file, reads the token from the
// descriptor whose number is `fd_variable`, the value of kTokenFdVariable, and closes it. Returns
// nullopt if neither is given. Returns kBadInput if the token cannot be read, can be guessed, or is
// in a file that other users may read. The token must be hard to guess, because its digest is sent
// in clear text, so anyone on the network can check guesses against it.
Result<std::optional<std::string>> ReadToken(const std::optional<std::string>& file,
                                             const char* fd_variable);

// Returns the path of a token file for commands that share a folder of the user and were given no
// token. The first command creates the file `name`, readable by the user alone; the other commands
// find it there. Returns kIo if the file cannot be created.
Result<std::string> ShareToken(const std::string& folder, const std::string& name);

// A command line that creates a good token in FILE, for messages.
inline constexpr char kMakeToken[] = "(umask 077; openssl rand -hex 32 > FILE)";

}  // namespace dslaunch
