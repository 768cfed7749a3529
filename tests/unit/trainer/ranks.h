// Several ranks inside one test: a thread each, with real process groups.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "dslaunch/process_group.h"
#include "proto/contract/worker_env.h"

namespace dslaunch {

inline int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw std::runtime_error("no free port");
  }
  close(fd);
  return ntohs(address.sin_port);
}

// Runs `rank` once for each rank. Returns what each threw, as its exception; null where it did not.
// A rank that throws leaves without a word, as a process that ends does.
inline std::vector<std::exception_ptr> RunRanks(
    int world_size, const std::function<void(const ProcessGroup&)>& rank) {
  const int port = FreePort();
  std::vector<std::exception_ptr> errors(static_cast<size_t>(world_size));
  std::vector<std::thread> threads;
  for (int i = 0; i < world_size; ++i) {
    threads.emplace_back([&, i] {
      try {
        WorkerEnv env;
        env.rank = env.local_rank = i;
        env.world_size = env.local_world_size = world_size;
        env.master_addr = "127.0.0.1";
        env.master_port = port;
        ProcessGroup group(env);
        rank(group);
        group.Finish();
      } catch (...) {
        errors[static_cast<size_t>(i)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// "" where there was no error.
inline std::string TextOf(const std::exception_ptr& error) {
  if (!error) return "";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace dslaunch
