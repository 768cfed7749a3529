// Asks the user for passwords and passphrases at the terminal. Answers are kept in memory only:
// never in an argument, a variable, a file or a message.
#pragma once

#include <optional>
#include <string>

#include "base/deadline.h"

namespace dslaunch {

// Returns whether the user can be asked: stdin and stderr are a terminal, and this process is in
// the terminal's foreground.
bool CanAskUser();

// Prints `prompt` and reads a line from the terminal, without echo unless `echo` is set. Concurrent
// callers ask one question at a time. Returns nullopt on end of file, at the deadline, or without a
// terminal. Thread-safe.
std::optional<std::string> AskUser(const std::string& prompt, bool echo, Deadline deadline);

// Asks like AskUser without echo, for a secret that another node or attempt may need again. The
// first answer about `what` is returned to all callers, even if it is empty or missing.
// Thread-safe.
std::optional<std::string> AskUserOnce(const std::string& what, const std::string& prompt,
                                       Deadline deadline);

// Records that the answer about `what` was wrong. Later calls of AskUserOnce for `what` return
// nullopt and do not ask again.
void ForgetAnswer(const std::string& what);

// Restores the terminal's echo if a question is still open. Call it before the process ends.
void RestoreTerminal();

}  // namespace dslaunch
