#include "cli/transport/ssh/ssh_prompt.h"

#include <fcntl.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <mutex>

#include "base/mutex.h"
#include "base/unique_fd.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxAnswerBytes = 1024;

// Guards the terminal's settings, which RestoreTerminal must be able to restore while a question is
// open.
Mutex settings_mutex;
UniqueFd changed_terminal DSL_GUARDED_BY(settings_mutex);
termios settings_before DSL_GUARDED_BY(settings_mutex){};

// Returns the mutex that admits one question at a time. It is a std::timed_mutex, because acquiring
// it must have a deadline.
std::timed_mutex& OneQuestion() {
  // Threads may outlive main(), so the mutex is never destroyed.
  static auto* const mutex = new std::timed_mutex;
  return *mutex;
}

// Returns the answers by topic. Guarded by OneQuestion().
std::map<std::string, std::optional<std::string>>& Answers() {
  static auto* const answers = new std::map<std::string, std::optional<std::string>>;
  return *answers;
}

UniqueFd OpenTerminal() {
  if (::isatty(STDIN_FILENO) == 0 || ::isatty(STDERR_FILENO) == 0) return UniqueFd();
  UniqueFd terminal(::open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY));
  // The kernel would stop a background process that reads from the terminal, so such a process gets
  // no terminal.
  if (terminal && ::tcgetpgrp(terminal.get()) != ::getpgrp()) terminal.Reset();
  return terminal;
}

void Show(int terminal, const std::string& text) {
  [[maybe_unused]] const ssize_t n = ::write(terminal, text.data(), text.size());
}

void SwitchEchoOff(int terminal) {
  const MutexLock lock(settings_mutex);
  if (::tcgetattr(terminal, &settings_before) != 0) return;
  termios quiet = settings_before;
  quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO | ECHOE | ECHOK | ECHONL);
  changed_terminal.Reset(::fcntl(terminal, F_DUPFD_CLOEXEC, 0));
  ::tcsetattr(terminal, TCSAFLUSH, &quiet);  // discards input typed before the question
}

std::optional<std::string> ReadLine(int terminal, Deadline deadline) {
  std::string line;
  while (true) {
    pollfd ready{terminal, POLLIN, 0};
    const int polled = ::poll(&ready, 1, deadline.PollMs());
    if (polled < 0 && errno == EINTR) continue;
    if (polled <= 0) return std::nullopt;
    char byte = 0;
    const ssize_t n = ::read(terminal, &byte, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return std::nullopt;
    if (byte == '\n' || byte == '\r') return line;
    if (line.size() < kMaxAnswerBytes) line += byte;
  }
}

// Prints `prompt` and reads an answer, as AskUser does. Precondition: the caller holds
// OneQuestion().
std::optional<std::string> Ask(const std::string& prompt, bool echo, Deadline deadline) {
  const UniqueFd terminal = OpenTerminal();
  if (!terminal) return std::nullopt;
  if (!echo) SwitchEchoOff(terminal.get());
  Show(terminal.get(), prompt);
  std::optional<std::string> answer = ReadLine(terminal.get(), deadline);
  if (!echo || !answer) Show(terminal.get(), "\n");
  RestoreTerminal();
  return answer;
}

}  // namespace

bool CanAskUser() { return OpenTerminal().valid(); }

std::optional<std::string> AskUser(const std::string& prompt, bool echo, Deadline deadline) {
  const std::unique_lock lock(OneQuestion(), deadline.when());
  return lock.owns_lock() ? Ask(prompt, echo, deadline) : std::nullopt;
}

std::optional<std::string> AskUserOnce(const std::string& what, const std::string& prompt,
                                       Deadline deadline) {
  const std::unique_lock lock(OneQuestion(), deadline.when());
  if (!lock.owns_lock()) return std::nullopt;
  if (const auto known = Answers().find(what); known != Answers().end()) return known->second;
  return Answers()[what] = Ask(prompt, /*echo=*/false, deadline);
}

void ForgetAnswer(const std::string& what) {
  const std::lock_guard lock(OneQuestion());
  Answers()[what].reset();
}

void RestoreTerminal() {
  const MutexLock lock(settings_mutex);
  if (!changed_terminal) return;
  ::tcsetattr(changed_terminal.get(), TCSADRAIN, &settings_before);
  changed_terminal.Reset();
}

}  // namespace dslaunch
