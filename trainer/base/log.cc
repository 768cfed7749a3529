#include "trainer/base/log.h"

#include <cstdio>

namespace dslaunch {

void PrintLine(const std::string& line) {
  PrintText(line + "\n");
  std::fflush(stdout);
}

void PrintText(const std::string& text) { std::fputs(text.c_str(), stdout); }

void PrintError(const std::string& line) {
  std::fflush(stdout);
  std::fputs((line + "\n").c_str(), stderr);
}

void ShowInLine(const std::string& text) { std::fputs(("\r" + text + "\033[K").c_str(), stderr); }

}  // namespace dslaunch
