// Passwords and passphrases, asked of the user at the terminal. They are kept in memory only: never
// in an argument, a variable, a file or a message.
#pragma once

#include <optional>
#include <string>

#include "base/deadline.h"

namespace dslaunch {

// True when the user can be asked: stdin and stderr are a terminal and this process is in its
// foreground.
bool CanAskUser();

// Shows `prompt` and reads a line from the terminal, without echo unless `echo`. One question at a
// time, in the whole process. nullopt: end of file, the deadline, or no terminal. Thread-safe.
std::optional<std::string> AskUser(const std::string& prompt, bool echo, Deadline deadline);

// The same for a secret that may be needed again, for another node or another attempt: the answer
// to the first question about `what` holds for all that ask, also an empty one and none.
// Thread-safe.
std::optional<std::string> AskUserOnce(const std::string& what, const std::string& prompt,
                                       Deadline deadline);

// The answer about `what` was wrong: it is not given again, and the question is not asked again.
void ForgetAnswer(const std::string& what);

// Gives the terminal its echo back where a question is still open. Before a process ends.
void LeaveTerminalAsItWas();

}  // namespace dslaunch
