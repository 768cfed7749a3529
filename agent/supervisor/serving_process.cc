#include "agent/supervisor/serving_process.h"

#include <charconv>
#include <filesystem>
#include <string>

#include "base/os/proc_text.h"

namespace dslaunch {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSocket = "socket:[";
constexpr uint64_t kListens = 0x10000;  // kernel's flag __SO_ACCEPTCON of listening sockets
constexpr std::string_view kTcpListens = "0A";

// Returns the inode in the target of a descriptor's link, such as 4711 for "socket:[4711]"; 0 for
// any other text.
uint64_t InodeOf(std::string_view link) {
  if (!link.starts_with(kSocket)) return 0;
  link.remove_prefix(kSocket.size());
  link = link.substr(0, link.find(']'));
  return TakeNumber(link);
}

// Returns the inodes in those lines of a table for which `is_listening` accepts the word at index
// `state_at`.
template <class IsListening>
std::set<uint64_t> Inodes(std::string_view table, int state_at, int inode_at,
                          IsListening is_listening) {
  std::set<uint64_t> inodes;
  TakeLine(table);  // skips the table's column headers
  while (!table.empty()) {
    std::string_view line = TakeLine(table);
    bool listens = false;
    for (int at = 0; at < inode_at; ++at) {
      const std::string_view word = TakeWord(line);
      if (at == state_at) listens = is_listening(word);
    }
    const uint64_t inode = TakeNumber(line);
    if (listens && inode != 0) inodes.insert(inode);
  }
  return inodes;
}

}  // namespace

std::set<uint64_t> ListeningUnixSockets(std::string_view net_unix) {
  constexpr int kFlagsAt = 3;
  constexpr int kInodeAt = 6;
  return Inodes(net_unix, kFlagsAt, kInodeAt, [](std::string_view word) {
    uint64_t flags = 0;
    std::from_chars(word.data(), word.data() + word.size(), flags, 16);
    return (flags & kListens) != 0;
  });
}

std::set<uint64_t> ListeningTcpSockets(std::string_view net_tcp) {
  constexpr int kStateAt = 3;
  constexpr int kInodeAt = 9;
  return Inodes(net_tcp, kStateAt, kInodeAt,
                [](std::string_view word) { return word == kTcpListens; });
}

bool Serves(pid_t pid) {
  const std::string folder = "/proc/" + std::to_string(pid);
  std::set<uint64_t> sockets;
  std::error_code error;
  for (fs::directory_iterator it(folder + "/fd", error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;
    if (const uint64_t inode = InodeOf(fs::read_symlink(it->path(), ignored).native()); inode != 0)
      sockets.insert(inode);
  }
  if (sockets.empty()) return false;
  std::set<uint64_t> listening = ListeningUnixSockets(ReadWhole(folder + "/net/unix").value_or(""));
  for (const char* table : {"/net/tcp", "/net/tcp6"})
    listening.merge(ListeningTcpSockets(ReadWhole(folder + table).value_or("")));
  for (const uint64_t inode : sockets) {
    if (listening.contains(inode)) return true;
  }
  return false;
}

}  // namespace dslaunch
