// Opens the Unix sockets of an agent: one through which commands reach a running job without its
// front end, and one for the node's ranks.
#pragma once

#include <sys/types.h>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"

namespace dslaunch {

// Returns the folders in which such sockets may be, best first. They belong to the user and exist
// until the next boot. `xdg_runtime_dir` is the value of that variable; nullptr if unset. Pure.
std::vector<std::string> SocketFolders(const char* xdg_runtime_dir, uid_t user);

// Returns JOB.NODE.sock. Several nodes of a job may be on one machine, so the name contains the
// node.
std::string SocketName(const std::string& job_id, uint32_t node_index);

// Creates `folder` if it is missing, and checks that only the user and root can change or enter it.
// OpenOwnFolder (base/os/ownership.h) must accept the folder, and its mode must be 0700. It must
// not be on a network file system, where clients cannot connect to a socket. Fails with the reason.
Result<void> CheckSocketFolder(const std::string& folder, uid_t user);

// The purpose of a socket, for its error message.
struct SocketPurpose {
  std::string name = "of a detached job";
  std::string hint = "make one of them right, or leave out --detach";
};

// A Unix socket of this agent, in the first folder that passes CheckSocketFolder(). Accepts
// connections of this user. Used on the loop's thread.
class AttachSocket {
 public:
  // Receives a connection of this user. Connections of other users are closed.
  using OnConnection = std::function<void(UniqueFd)>;

  // Starts to listen and returns the socket. Fails with kIo if all folders are refused; the message
  // contains the reason for each folder and a hint.
  static Result<std::unique_ptr<AttachSocket>> Listen(asio::io_context& loop,
                                                      const std::vector<std::string>& folders,
                                                      const std::string& name,
                                                      OnConnection on_connection,
                                                      const SocketPurpose& purpose = {});
  // Stops listening and removes the socket's file.
  ~AttachSocket();

  const std::string& path() const { return path_; }

 private:
  AttachSocket(asio::io_context& loop, UniqueFd listener, std::string path,
               OnConnection on_connection);
  void Accept();

  asio::posix::stream_descriptor listener_;
  const std::string path_;
  const OnConnection on_connection_;
};

// Connects to the socket `name` in the first folder that passes CheckSocketFolder() and where a job
// listens. Returns an invalid descriptor if no job listens.
UniqueFd ConnectToSocket(const std::vector<std::string>& folders, const std::string& name);

}  // namespace dslaunch
