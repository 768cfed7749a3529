#include "agent/node/attach_socket.h"

#include <linux/magic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/os/ownership.h"
#include "base/os/unix_socket.h"

namespace dslaunch {
namespace {

constexpr int kBacklog = 16;
// Magic numbers of network file systems, from linux/magic.h and the file systems' headers.
constexpr std::array<unsigned long, 6> kNetworkFileSystems = {
    NFS_SUPER_MAGIC,       SMB_SUPER_MAGIC,         CIFS_SUPER_MAGIC,
    0xfe534d42 /* SMB2 */, 0x0bd00bd0 /* Lustre */, CEPH_SUPER_MAGIC};

Error Refuse(const std::string& folder, const std::string& why) {
  return {ExitCode::kIo, folder + " " + why};
}

bool IsNetworkFileSystem(int fd) {
  struct statfs info {};
  if (::fstatfs(fd, &info) != 0) return true;
  for (const unsigned long type : kNetworkFileSystems) {
    if (static_cast<unsigned long>(info.f_type) == type) return true;
  }
  return false;
}

Result<UniqueFd> ListenAt(const std::string& folder, const std::string& path) {
  DSL_TRY(CheckSocketFolder(folder, ::geteuid()));
  const std::optional<sockaddr_un> address = UnixAddress(path);
  if (!address) return Refuse(path, "is too long for a socket");
  UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener ||
      ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0 ||
      ::chmod(path.c_str(), 0600) != 0 || ::listen(listener.get(), kBacklog) != 0) {
    return Refuse(path, std::string("cannot be opened: ") + std::strerror(errno));
  }
  return listener;
}

}  // namespace

std::vector<std::string> SocketFolders(const char* xdg_runtime_dir, uid_t user) {
  std::vector<std::string> folders;
  if (xdg_runtime_dir != nullptr && *xdg_runtime_dir == '/')
    folders.push_back(std::string(xdg_runtime_dir) + "/dslaunch");
  const std::string runtime = "/run/user/" + std::to_string(user) + "/dslaunch";
  if (folders.empty() || folders.front() != runtime) folders.push_back(runtime);
  folders.push_back("/tmp/dslaunch-" + std::to_string(user));
  return folders;
}

std::string SocketName(const std::string& job_id, uint32_t node_index) {
  return job_id + "." + std::to_string(node_index) + ".sock";
}

Result<void> CheckSocketFolder(const std::string& folder, uid_t user) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return Refuse(folder, std::string("cannot be made: ") + std::strerror(errno));
  DSL_TRY_ASSIGN(const UniqueFd at, OpenOwnFolder(folder, user, IfMissing::kFail));
  struct stat status {};
  if (::fstat(at.get(), &status) != 0 || status.st_uid != user || (status.st_mode & 0777) != 0700)
    return Refuse(folder, "is not private to this user; chmod 700 it or remove it");
  if (IsNetworkFileSystem(at.get())) return Refuse(folder, "is on a network file system");
  return {};
}

Result<std::unique_ptr<AttachSocket>> AttachSocket::Listen(asio::io_context& loop,
                                                           const std::vector<std::string>& folders,
                                                           const std::string& name,
                                                           OnConnection on_connection,
                                                           const SocketPurpose& purpose) {
  std::string refusals;
  for (const std::string& folder : folders) {
    std::string path = folder + "/" + name;
    Result<UniqueFd> listener = ListenAt(folder, path);
    if (listener.ok()) {
      return std::unique_ptr<AttachSocket>(
          new AttachSocket(loop, *std::move(listener), std::move(path), std::move(on_connection)));
    }
    refusals += (refusals.empty() ? "" : "; ") + listener.error().message;
  }
  return Error{ExitCode::kIo,
               "no folder for the socket " + purpose.name + ": " + refusals + "; " + purpose.hint};
}

AttachSocket::AttachSocket(asio::io_context& loop, UniqueFd listener, std::string path,
                           OnConnection on_connection)
    : listener_(loop, listener.Release()),
      path_(std::move(path)),
      on_connection_(std::move(on_connection)) {
  Accept();
}

AttachSocket::~AttachSocket() { ::unlink(path_.c_str()); }

void AttachSocket::Accept() {
  listener_.async_wait(asio::posix::stream_descriptor::wait_read, [this](std::error_code error) {
    if (error) return;
    UniqueFd connection(::accept4(listener_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection && IsOwnUser(connection.get())) on_connection_(std::move(connection));
    Accept();
  });
}

UniqueFd ConnectToSocket(const std::vector<std::string>& folders, const std::string& name) {
  for (const std::string& folder : folders) {
    const std::string path = folder + "/" + name;
    const std::optional<sockaddr_un> address = UnixAddress(path);
    if (::access(path.c_str(), F_OK) != 0 || !address) continue;
    if (!CheckSocketFolder(folder, ::geteuid()).ok()) continue;
    UniqueFd connection(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connection && ConnectUnix(connection.get(), *address) == 0) return connection;
  }
  return UniqueFd();
}

}  // namespace dslaunch
