// Preloaded (LD_PRELOAD) into a program that tests start often. The program starts once, up to
// main, and then forks a process for each request; the new process continues with main. This saves
// time, because a LibTorch program's work before main takes 0.25 s of a core, more than most tests'
// steps. start_once.py sends the requests.
//   START_ONCE_FD  a stream socket, on which start_once.py sends its requests
// A request begins with its length (8 bytes), with the new process's file descriptors attached.
// Then come strings, each ended by NUL: the working folder, the numbers that the descriptors get
// (separated by spaces), the number of arguments, the arguments, the environment. The answer is the
// process ID (8 bytes). The intermediate parent of the new process has exited, so its parent is the
// subreaper. Without START_ONCE_FD the program starts as usual.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace {

using dslaunch::UniqueFd;

using Main = int (*)(int, char**, char**);

constexpr size_t kMostFds = 16;
constexpr int kFreeFd = 1000;  // lowest descriptor number that requests cannot use

Main program_main;

struct Request {
  std::vector<char> bytes;  // memory that the pointers below point to
  const char* folder = nullptr;
  std::vector<int> numbers;
  std::vector<UniqueFd> fds;  // descriptors to be installed under `numbers`, by index
  std::vector<char*> arguments,
      environment;  // each ends with a null pointer
};

[[noreturn]] void Die(const char* what) {
  perror(what);
  _exit(127);
}

// Closes `fd` and returns a duplicate whose number is above the numbers of requests.
UniqueFd AboveOthers(int fd) {
  const UniqueFd low(fd);
  UniqueFd high(fcntl(fd, F_DUPFD_CLOEXEC, kFreeFd));
  if (!high) Die("start_once: fcntl");
  return high;
}

bool ReadAll(int fd, void* data, size_t size) {
  for (size_t done = 0; done < size;) {
    const ssize_t n = read(fd, static_cast<char*>(data) + done, size - done);
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

// Receives a request's length and its descriptors. Returns false at the end of requests.
bool ReceiveHeader(int socket, uint64_t& size, std::vector<UniqueFd>& fds) {
  iovec part = {&size, sizeof size};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostFds * sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(socket, &message, MSG_WAITALL) != sizeof size) return false;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return false;
  std::vector<int> received((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
  memcpy(received.data(), CMSG_DATA(header), received.size() * sizeof(int));
  for (const int fd : received) fds.push_back(AboveOthers(fd));
  return true;
}

bool Receive(int socket, Request& request) {
  uint64_t size = 0;
  if (!ReceiveHeader(socket, size, request.fds)) return false;
  request.bytes.resize(size);
  if (!ReadAll(socket, request.bytes.data(), size)) return false;
  std::vector<char*> strings;
  for (size_t at = 0; at < size; at += strlen(&request.bytes[at]) + 1)
    strings.push_back(&request.bytes[at]);
  request.folder = strings.at(0);
  std::istringstream numbers(strings.at(1));
  for (int number; numbers >> number;) request.numbers.push_back(number);
  const auto environment = strings.begin() + 3 + atoi(strings.at(2));
  request.arguments.assign(strings.begin() + 3, environment);
  request.arguments.push_back(nullptr);
  request.environment.assign(environment, strings.end());
  request.environment.push_back(nullptr);
  return true;
}

struct Pipe {
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) Die("start_once: pipe2");
    reader = AboveOthers(ends[0]);
    writer = AboveOthers(ends[1]);
  }

  UniqueFd reader, writer;
};

void AdoptRequest(Request& request) {
  for (size_t i = 0; i < request.numbers.size(); ++i) {
    if (dup2(request.fds.at(i).get(), request.numbers[i]) < 0) Die("start_once: dup2");
  }
  request.fds.clear();
  if (chdir(request.folder) != 0) Die(request.folder);
  environ = request.environment.data();
}

// Returns twice, like fork: 0 in the new process, whose direct parent has exited by then, and the
// process ID in the caller.
pid_t ForkWithoutParent(Request& request) {
  Pipe told, gone;
  const pid_t between = fork();
  if (between < 0) Die("start_once: fork");
  if (between == 0) {
    AdoptRequest(request);  // must precede the fork that other preloaded libraries see
    const pid_t process = fork();
    if (process < 0) Die("start_once: fork");
    if (process > 0)
      _exit(write(told.writer.get(), &process, sizeof process) == sizeof process ? 0 : 1);
    gone.writer.Reset();
    char none = 0;
    if (read(gone.reader.get(), &none, 1) != 0) Die("start_once: read");
    return 0;
  }
  told.writer.Reset();
  pid_t process = -1;
  if (!ReadAll(told.reader.get(), &process, sizeof process)) Die("start_once: read");
  gone.writer.Reset();
  if (waitpid(between, nullptr, 0) != between) Die("start_once: waitpid");
  return process;
}

int Serve(int argc, char** argv, char** envp) {
  const char* given = std::getenv("START_ONCE_FD");
  if (given == nullptr) return program_main(argc, argv, envp);
  UniqueFd socket = AboveOthers(atoi(given));
  for (;;) {
    auto request = std::make_unique<Request>();
    if (!Receive(socket.get(), *request)) _exit(0);
    const int64_t process = ForkWithoutParent(*request);
    if (process == 0) {
      socket.Reset();
      Request& own = *request.release();  // never freed, because exit handlers still use it
      return program_main(static_cast<int>(own.arguments.size()) - 1, own.arguments.data(),
                          environ);
    }
    if (send(socket.get(), &process, sizeof process, MSG_NOSIGNAL) != sizeof process) _exit(0);
  }
}

}  // namespace

// Overrides the C library's function, which _start calls with the program's main, so that Serve
// runs instead.
extern "C" int __libc_start_main(Main main, int argc, char** argv, void (*init)(), void (*fini)(),
                                 void (*rtld_fini)(), void* stack_end) {
  program_main = main;
  const auto next =
      reinterpret_cast<decltype(&__libc_start_main)>(dlsym(RTLD_NEXT, "__libc_start_main"));
  return next(Serve, argc, argv, init, fini, rtld_fini, stack_end);
}
