#include "cli/top/terminal_type.h"

#include <string>

#include "base/text/sanitize.h"

// In a file of its own, because the header defines macros such as `lines` and `columns`.
#include <curses.h>
#include <term.h>

namespace dslaunch {
namespace {

constexpr int kStandardOutput = 1;

bool CanPlaceCursor() { return cursor_address != nullptr && clear_screen != nullptr; }

}  // namespace

Result<void> CheckTerminalType(const char* type) {
  int status = 0;
  if (type == nullptr || *type == '\0')
    return Error{ExitCode::kUsage, std::string("TERM is not set") + kInsteadOfScreen};
  if (setupterm(type, kStandardOutput, &status) != OK) {
    return Error{ExitCode::kUsage, "the terminal type " + Quoted(type) +
                                       " (TERM) is not in this machine's terminfo: set TERM=xterm" +
                                       kInsteadOfScreen};
  }
  if (!CanPlaceCursor()) {
    return Error{ExitCode::kUsage, "a terminal of the type " + Quoted(type) +
                                       " (TERM) cannot draw a screen" + kInsteadOfScreen};
  }
  return {};
}

}  // namespace dslaunch
