// Runs several ranks inside one test: one thread per rank, with real process groups.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <barrier>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "dslaunch/process_group.h"
#include "proto/contract/worker_env.h"

namespace dslaunch {

// A port of this machine that listens until the object is destroyed. So no other process can take
// the port before the ranks' store uses it.
class HeldPort {
 public:
  HeldPort() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (bind(fd_, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(fd_, 128) != 0 ||
        getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      throw std::runtime_error("no free port");
    }
    port_ = ntohs(address.sin_port);
  }
  ~HeldPort() { close(fd_); }
  HeldPort(const HeldPort&) = delete;
  HeldPort& operator=(const HeldPort&) = delete;

  int fd() const { return fd_; }
  int port() const { return port_; }

 private:
  const int fd_;
  int port_ = 0;
};

// State of RunRanks for the rank that runs in this thread.
struct RankThread {
  std::barrier<>* together = nullptr;  // barrier of all ranks' threads
  std::vector<c10::intrusive_ptr<c10d::ProcessGroup>> subgroups;
};
inline thread_local RankThread rank_thread;

// Makes LibTorch record a group. LibTorch's record of collectives belongs to the process. It adds
// each process group at its first collective, without a lock, because it does not expect several
// ranks in one process. So the first collectives are started one after the other, all before any
// rank continues.
inline void RecordGroup(c10d::ProcessGroup& group, std::barrier<>& entered) {
  static std::mutex mutex;
  c10::intrusive_ptr<c10d::Work> work;
  {
    const std::lock_guard lock(mutex);
    work = group.getBackend(c10::DeviceType::CPU)->barrier();
  }
  entered.arrive_and_wait();
  work->wait();
}

// Makes LibTorch record a subgroup of RunRanks' group for this thread (RecordGroup). All ranks must
// call this at the same time, each for a subgroup that contains it, before they use the subgroup.
inline void RecordSubgroup(const ProcessGroup& subgroup) {
  rank_thread.subgroups.push_back(subgroup.c10d_group());
  RecordGroup(*subgroup.c10d_group(), *rank_thread.together);
}

// Returns the subgroup `name` of `group` with `ranks`, on which collectives can run at once:
// LibTorch has recorded it (RecordSubgroup). All ranks of RunRanks must call this at the same time,
// each for a subgroup that contains it.
inline ProcessGroup MakeSubgroup(const ProcessGroup& group, const std::vector<int>& ranks,
                                 const std::string& name) {
  ProcessGroup subgroup = group.Subgroup(ranks, name);
  RecordSubgroup(subgroup);
  return subgroup;
}

// Runs `rank` once for each rank, in its own thread. Returns the exception of each rank; null for a
// rank that did not throw. A rank that throws leaves the group without a message, as a process that
// crashes does.
inline std::vector<std::exception_ptr> RunRanks(
    int world_size, const std::function<void(const ProcessGroup&)>& rank) {
  const HeldPort held;
  std::vector<std::exception_ptr> errors(static_cast<size_t>(world_size));
  std::vector<std::thread> threads;
  std::barrier entered(world_size);
  for (int i = 0; i < world_size; ++i) {
    threads.emplace_back([&, i] {
      c10::intrusive_ptr<c10d::ProcessGroup> connections;
      c10::intrusive_ptr<c10d::Store> store;
      try {
        WorkerEnv env;
        env.rank = env.local_rank = i;
        env.world_size = env.local_world_size = world_size;
        env.master_addr = "127.0.0.1";
        env.master_port = held.port();
        if (i == 0) env.store_fd = held.fd();
        ProcessGroup group(env);
        connections = group.c10d_group();
        store = group.store();
        RecordGroup(*connections, entered);
        rank_thread.together = &entered;
        rank(group);
        group.Finish();
      } catch (...) {
        errors[static_cast<size_t>(i)] = std::current_exception();
        // ProcessGroup leaves its connections open until the process ends. Here only a thread ends,
        // so they are released explicitly.
        for (const auto& subgroup : rank_thread.subgroups) {
          c10::raw::intrusive_ptr::decref(subgroup.get());
        }
        if (connections) c10::raw::intrusive_ptr::decref(connections.get());
        if (store) c10::raw::intrusive_ptr::decref(store.get());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// Returns the message of the error; "" if there is no error.
inline std::string TextOf(const std::exception_ptr& error) {
  if (!error) return "";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace dslaunch
