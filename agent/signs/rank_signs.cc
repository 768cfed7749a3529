#include "agent/signs/rank_signs.h"

#include <dirent.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "agent/accelerators/accelerators.h"
#include "base/os/own_cgroup.h"
#include "base/os/proc_text.h"
#include "base/os/process_tree.h"
#include "base/os/socket_diag.h"

namespace dslaunch {
namespace {

using Sockets = std::unordered_map<uint64_t, TcpSocket>;  // TCP sockets by their inode
using Children = std::unordered_map<pid_t, std::vector<ProcessInfo>>;

std::optional<Sockets> ReadSockets() {
  Sockets sockets;
  for (const int family : {AF_INET, AF_INET6}) {
    const auto listed = ListTcpSockets(family, {.counters = true});
    if (!listed) return std::nullopt;
    for (const TcpSocket& socket : *listed) sockets.emplace(socket.inode, socket);
  }
  return sockets;
}

struct ProcessUse {
  uint64_t own_ms = 0;
  uint64_t reaped_ms = 0;  // CPU time of children that the process has reaped, in ms
  uint64_t memory_bytes = 0;
};

std::optional<ProcessUse> ReadProcessUse(const std::string& folder) {
  const std::optional<std::string> stat = ReadWhole(folder + "stat");
  if (!stat || stat->rfind(')') == std::string::npos) return std::nullopt;
  std::string_view rest = std::string_view(*stat).substr(stat->rfind(')') + 1);
  constexpr int kFieldsToTimes = 11;  // number of fields from the state to the fourth fault count
  for (int i = 0; i < kFieldsToTimes; ++i) TakeWord(rest);
  static const uint64_t ms_per_tick =
      1000 / static_cast<uint64_t>(std::max(1L, ::sysconf(_SC_CLK_TCK)));
  ProcessUse use;
  use.own_ms = (TakeNumber(rest) + TakeNumber(rest)) * ms_per_tick;
  use.reaped_ms = (TakeNumber(rest) + TakeNumber(rest)) * ms_per_tick;
  // Number of fields from the priority to the size of the address space.
  constexpr int kFieldsToMemory = 6;
  for (int i = 0; i < kFieldsToMemory; ++i) TakeWord(rest);
  static const uint64_t page_bytes = static_cast<uint64_t>(std::max(1L, ::sysconf(_SC_PAGESIZE)));
  use.memory_bytes = TakeNumber(rest) * page_bytes;
  return use;
}

// Adds the number of bytes that the process has read and written, both through any descriptor and
// on storage. Returns false if these numbers cannot be read.
bool AddFileBytes(const std::string& folder, RankSigns& signs) {
  const std::optional<std::string> io = ReadWhole(folder + "io");
  if (!io) return false;
  std::string_view rest = *io;
  while (!rest.empty()) {
    std::string_view line = TakeLine(rest);
    const std::string_view name = TakeWord(line);
    if (name == "rchar:" || name == "wchar:") signs.file_bytes += TakeNumber(line);
    if (name == "read_bytes:") signs.use.disk_read_bytes += TakeNumber(line);
    if (name == "write_bytes:") signs.use.disk_written_bytes += TakeNumber(line);
  }
  return true;
}

uint64_t SizeOf(const std::string& path) {
  struct stat status = {};
  return ::stat(path.c_str(), &status) == 0 ? static_cast<uint64_t>(status.st_size) : 0;
}

// Returns whether the file may be a network device whose exchanges are not visible, such as a
// device of InfiniBand.
bool IsUnknownDevice(std::string_view path) {
  constexpr std::string_view kFolder = "/dev/";
  if (!path.starts_with(kFolder)) return false;
  path.remove_prefix(kFolder.size());
  constexpr std::string_view kHarmless[] = {"null", "zero", "full",    "random", "urandom",
                                            "tty",  "ptmx", "console", "fuse"};
  return !path.starts_with("pts/") && !path.starts_with("shm/") &&
         std::ranges::count(kHarmless, path) == 0;
}

// Returns whether the process's cgroup (version 2) is frozen, as by `docker pause`. The kernel
// reports such a process as asleep, so its state alone does not show this.
bool IsFrozen(const std::string& folder, const std::string& mountinfo) {
  const Result<std::string> cgroup =
      FindOwnCgroup(mountinfo, ReadWhole(folder + "cgroup").value_or(""));
  const auto events = cgroup.ok() ? ReadWhole(*cgroup + "/cgroup.events") : std::nullopt;
  return events && events->find("frozen 1") != std::string::npos;
}

// Adds the accelerators, unknown devices and TCP counters that the descriptors of a process show.
// Skips sockets in `seen`, so that a shared socket counts once. Returns false if the descriptors
// cannot be read.
bool AddDescriptors(const std::string& folder, const Sockets& sockets, int store_port, int ras_port,
                    std::unordered_set<uint64_t>& seen, RankSigns& signs) {
  constexpr std::string_view kSocket = "socket:[";
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir((folder + "fd").c_str()), closedir);
  if (dir == nullptr) return false;
  std::array<char, 64> target;
  while (const dirent* entry = readdir(dir.get())) {
    const ssize_t size =
        ::readlinkat(dirfd(dir.get()), entry->d_name, target.data(), target.size());
    if (size <= 0) continue;
    std::string_view link(target.data(), static_cast<size_t>(size));
    if (IsAcceleratorFile(link)) signs.has_gpu = true;
    signs.has_device = signs.has_device || IsUnknownDevice(link);
    if (!link.starts_with(kSocket)) continue;
    link.remove_prefix(kSocket.size());
    uint64_t inode = 0;
    std::from_chars(link.data(), link.data() + link.size(), inode);
    const auto socket = sockets.find(inode);
    if (socket == sockets.end() || !seen.insert(inode).second) continue;
    const TcpSocket& tcp = socket->second;
    const auto uses = [&](int port) { return tcp.own_port == port || tcp.peer_port == port; };
    const uint64_t bytes = tcp.sent_bytes + tcp.received_bytes;
    if (uses(store_port) || uses(ras_port)) {
      signs.store_bytes += bytes;
    } else {
      signs.peer_bytes += bytes;
      signs.use.peer_sent_bytes += tcp.sent_bytes;
      signs.use.peer_received_bytes += tcp.received_bytes;
      signs.unread_bytes += tcp.unread_bytes;
    }
  }
  return true;
}

std::vector<ProcessInfo> TreeOf(pid_t root, const Children& children) {
  std::vector<ProcessInfo> tree;
  const std::optional<ProcessInfo> first = ReadProcess(root);
  if (!first) return tree;
  tree.push_back(*first);
  std::unordered_set<pid_t> seen = {root};
  for (size_t next = 0; next < tree.size(); ++next) {
    const auto found = children.find(tree[next].id.pid);
    if (found == children.end()) continue;
    for (const ProcessInfo& child : found->second) {
      if (seen.insert(child.id.pid).second) tree.push_back(child);
    }
  }
  return tree;
}

// Returns the signs of life of a rank's process tree; nullopt if the root process cannot be read.
// Skips descendants that end meanwhile. `mountinfo` is the content of /proc/self/mountinfo.
std::optional<RankSigns> ReadRank(const RankProcess& rank, const Children& children,
                                  const Sockets& sockets, const std::string& mountinfo,
                                  int store_port) {
  RankSigns signs;
  std::unordered_set<uint64_t> seen;
  for (const ProcessInfo& process : TreeOf(rank.pid, children)) {
    const bool is_root = process.id.pid == rank.pid;
    const std::string folder = "/proc/" + std::to_string(process.id.pid) + "/";
    const std::optional<ProcessUse> use = ReadProcessUse(folder);
    if (!use) {
      if (is_root) return std::nullopt;
      continue;
    }
    (is_root ? signs.own_cpu_ms : signs.child_cpu_ms) += use->own_ms;
    signs.child_cpu_ms += use->reaped_ms;
    signs.use.memory_bytes += use->memory_bytes;
    signs.processes = signs.processes * 1'000'003 + process.id.start_ticks +
                      static_cast<uint64_t>(process.id.pid);
    signs.stopped = signs.stopped || process.state == 'T' || process.state == 't' ||
                    (is_root && IsFrozen(folder, mountinfo));
    if (process.ended) continue;
    const bool readable = AddFileBytes(folder, signs) &&
                          AddDescriptors(folder, sockets, store_port, rank.ras_port, seen, signs);
    if (!readable && is_root) return std::nullopt;
  }
  if (signs.processes == 0) return std::nullopt;
  signs.output_bytes = SizeOf(rank.folder + "/stdout.log") + SizeOf(rank.folder + "/stderr.log");
  return signs;
}

}  // namespace

std::vector<std::optional<RankSigns>> ReadRankSigns(const std::vector<RankProcess>& ranks,
                                                    int store_port) {
  std::vector<std::optional<RankSigns>> all(ranks.size());
  const std::optional<Sockets> sockets = ReadSockets();
  if (!sockets) return all;
  Children children;
  for (ProcessInfo& info : AllProcesses()) children[info.parent].push_back(std::move(info));
  const std::string mountinfo = ReadWhole("/proc/self/mountinfo").value_or("");
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].pid > 0) all[i] = ReadRank(ranks[i], children, *sockets, mountinfo, store_port);
  }
  return all;
}

}  // namespace dslaunch
