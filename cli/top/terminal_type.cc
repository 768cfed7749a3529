#include "cli/top/terminal_type.h"

#include <cstdlib>
#include <string>
#include <string_view>

#include "base/text/sanitize.h"

// <curses.h> defines macros such as `lines` and `columns`, so this code is in a separate source
// file.
#include <curses.h>
#include <term.h>

namespace dslaunch {
namespace {

constexpr int kStandardOutput = 1;

// A compiled description in a form that TERMINFO accepts (`infocmp -Q2`), for machines without
// ncurses' database. Its source is tests/unit/cli/top/like_xterm.ti.
constexpr char kLikeXterm[] =
    "b64:GgEbAA8ADwBpAVEBeHRlcm18dGVybWluYWxzIGxpa2UgeHRlcm0AAAEAAAEAAAABAAAAAAEBUAAIABgA______"
    "____________________8IAEAA__8AAAIABAD__xUAHQAhAP____8lADYAOAA8AEMA__9FAEwA__9QAP__________"
    "__9UAP__WABdAP____________9mAGsAcAD__3UAeQCAAP____-JAI8A__________________________-VAP____"
    "___5cA__-cAP__________oAD_______________________-kAP____-oAP__rACxALYA________ugC-AMYA____"
    "_________________________________________84A________1wDgAP__6QD___________________________"
    "__8gD___UA-AD6AP________________________________________0A________________________________"
    "_____________zAB__________________________________________________________________________"
    "__________________________________________________________________________________________"
    "__________________________________________________________________________________________"
    "__________________________________________________________________________________________"
    "________NAH_______________________________________________________________________________"
    "___________________________________________________________________________________z0BRwEH"
    "AA0AG1slaSVwMSVkOyVwMiVkcgAbW0gbWzJKABtbSwAbW0oAG1slaSVwMSVkOyVwMiVkSAAKABtbSAAbWz8yNWwACA"
    "AbWz8yNWgAG1tDABtbQQAbKDAAG1sxbQAbWz8xMDQ5aAAbWzdtABtbN20AG1s0bQAbKEIAGyhCG1ttABtbPzEwNDls"
    "ABtbMjdtABtbMjRtAH8AG1szfgAbT0IAG09QABtPSAAbT0QAG1s2fgAbWzV-ABtPQwAbT0EAG1s_MWwbPgAbWz8xaB"
    "s9ABtbJXAxJWRCABtbJXAxJWREABtbJXAxJWRDABtbJXAxJWRBABs4ABs3AAoAG00AYGBhYWZmZ2dqamtrbGxtbW5u"
    "b29wcHFxcnJzc3R0dXV2dnd3eHh5eXp6e3t8fH19fn4AG09GABtbMzk7NDltABtbMyVwMSVkbQAbWzQlcDElZG0A";

// Returns whether a terminal of this type accepts the sequences of xterm.
bool IsLikeXterm(std::string_view type) {
  for (const std::string_view name :
       {"xterm", "screen", "tmux", "rxvt", "alacritty", "foot", "kitty", "vte", "gnome", "konsole",
        "putty", "linux", "ghostty"}) {
    if (type == name || (type.starts_with(name) && type[name.size()] == '-')) return true;
  }
  return false;
}

bool CanPlaceCursor() { return cursor_address != nullptr && clear_screen != nullptr; }

}  // namespace

Result<std::string> UsableTerminalType(const char* type) {
  int status = 0;
  if (type == nullptr || *type == '\0')
    return Error{ExitCode::kUsage, std::string("TERM is not set") + kInsteadOfScreen};
  std::string usable = type;
  if (setupterm(type, kStandardOutput, &status) != OK && IsLikeXterm(type)) {
    ::setenv("TERMINFO", kLikeXterm, /*overwrite=*/1);
    usable = "xterm";
  }
  if (setupterm(usable.c_str(), kStandardOutput, &status) != OK) {
    return Error{ExitCode::kUsage, "the terminal type " + Quoted(type) +
                                       " (TERM) is not in this machine's terminfo: set TERM=xterm" +
                                       kInsteadOfScreen};
  }
  if (!CanPlaceCursor()) {
    return Error{ExitCode::kUsage, "a terminal of the type " + Quoted(type) +
                                       " (TERM) cannot draw a screen" + kInsteadOfScreen};
  }
  return usable;
}

}  // namespace dslaunch
