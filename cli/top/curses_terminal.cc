#include "cli/top/curses_terminal.h"

#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <clocale>
#include <cstdlib>
#include <cstring>
#include <string>

#include "cli/top/terminal_type.h"

// Without this definition, macros such as erase and clear replace the names of functions.
#define NCURSES_NOMACROS
#include <curses.h>

namespace dslaunch {
namespace {

constexpr short kWarningPair = 1;

// Returns `text` without the characters that a terminal with a different character set would
// garble.
std::string Ascii(const std::string& text) {
  std::string ascii;
  for (const char byte : text) {
    const auto code = static_cast<unsigned char>(byte);
    if (code < 0x80)
      ascii += byte;
    else if (code >= 0xc0)
      ascii += '?';  // stands for the whole character, whose other bytes are left out
  }
  return ascii;
}

int AttributeOf(TopStyle style, bool has_colors) {
  switch (style) {
    case TopStyle::kBold:
      return static_cast<int>(A_BOLD);
    case TopStyle::kHeading:
      return static_cast<int>(A_UNDERLINE);
    case TopStyle::kChosen:
      return static_cast<int>(A_REVERSE);
    case TopStyle::kWarning:
      return static_cast<int>(has_colors ? COLOR_PAIR(kWarningPair) : A_BOLD);
    case TopStyle::kPlain:
      break;
  }
  return static_cast<int>(A_NORMAL);
}

}  // namespace

Result<std::unique_ptr<CursesTerminal>> CursesTerminal::Open() {
  if (::isatty(STDIN_FILENO) == 0 || ::isatty(STDOUT_FILENO) == 0)
    return Error{ExitCode::kUsage,
                 std::string("dslaunch top draws on a terminal, and stdin or stdout is none") +
                     kInsteadOfScreen};
  DSL_TRY_ASSIGN(const std::string type, UsableTerminalType(std::getenv("TERM")));
  std::setlocale(LC_CTYPE, "");
  const bool is_utf8 = std::strcmp(::nl_langinfo(CODESET), "UTF-8") == 0;
  ::set_escdelay(25);
  if (::newterm(type.c_str(), stdout, stdin) == nullptr)
    return Error{ExitCode::kUsage, "the terminal cannot be set up" + std::string(kInsteadOfScreen)};
  ::cbreak();
  ::noecho();
  ::nonl();
  ::keypad(stdscr, TRUE);
  ::nodelay(stdscr, TRUE);
  ::curs_set(0);
  const char* const no_color = std::getenv("NO_COLOR");
  const bool wants_colors = no_color == nullptr || *no_color == '\0';
  const bool has_colors = wants_colors && ::has_colors() && ::start_color() == OK;
  if (has_colors) {
    ::use_default_colors();
    ::init_pair(kWarningPair, COLOR_RED, -1);
  }
  return std::unique_ptr<CursesTerminal>(new CursesTerminal(has_colors, is_utf8));
}

CursesTerminal::~CursesTerminal() { ::endwin(); }

size_t CursesTerminal::rows() const { return static_cast<size_t>(getmaxy(stdscr)); }

size_t CursesTerminal::columns() const { return static_cast<size_t>(getmaxx(stdscr)); }

void CursesTerminal::Resize() {
  winsize size = {};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0)
    return;
  ::resizeterm(size.ws_row, size.ws_col);
  ::clearok(curscr, TRUE);  // redraws everything, because the terminal may have moved its lines
}

void CursesTerminal::Show(const TopScreen& screen) {
  ::werase(stdscr);
  int row = 0;
  for (const TopLine& line : screen.lines) {
    ::wmove(stdscr, row++, 0);
    for (const TopSpan& span : line) {
      const std::string text = is_utf8_ ? span.text : Ascii(span.text);
      ::wattrset(stdscr, AttributeOf(span.style, has_colors_));
      ::waddnstr(stdscr, text.c_str(), static_cast<int>(text.size()));
    }
  }
  ::wattrset(stdscr, static_cast<int>(A_NORMAL));
  ::wrefresh(stdscr);
}

std::optional<TopKey> CursesTerminal::ReadKey() {
  const int key = ::wgetch(stdscr);
  constexpr int kEscape = 27;
  switch (key) {
    case ERR:
      return std::nullopt;
    case KEY_UP:
    case 'k':
      return TopKey::kUp;
    case KEY_DOWN:
    case 'j':
      return TopKey::kDown;
    case KEY_PPAGE:
      return TopKey::kPageUp;
    case KEY_NPAGE:
    case ' ':
      return TopKey::kPageDown;
    case '\r':
    case '\n':
    case KEY_ENTER:
      return TopKey::kOpen;
    case 's':
      return TopKey::kStacks;
    case 'l':
      return TopKey::kLog;
    case 'o':
      return TopKey::kSort;
    case 'x':
      return TopKey::kStop;
    case 'h':
    case '?':
      return TopKey::kHelp;
    case 'q':
      return TopKey::kLeave;
    case kEscape:
      return TopKey::kBack;
    case 'y':
      return TopKey::kYes;
    default:
      return TopKey::kOther;
  }
}

}  // namespace dslaunch
