#include "agent/stacks/shared_memory.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/stacks/process_maps.h"
#include "base/os/proc_text.h"
#include "base/unique_fd.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxMappings = 20'000;
// Flag of a page that is in memory, in /proc/PID/pagemap.
constexpr uint64_t kPresent = uint64_t{1} << 63;
constexpr size_t kPagesAtOnce = 64;

// Returns whether a mapping belongs to a device, whose registers and own memory must not be read.
bool IsDevice(std::string_view path) {
  return path.starts_with("/dev/") && !path.starts_with("/dev/shm/") && path != "/dev/zero";
}

uint64_t Hash(uint64_t hash, const std::byte* bytes, size_t size) {
  constexpr uint64_t kPrime = 0x100000001b3;
  uint64_t word = 0;
  for (size_t i = 0; i + sizeof word <= size; i += sizeof word) {
    std::memcpy(&word, bytes + i, sizeof word);
    hash = (hash ^ word) * kPrime + (hash >> 32);
  }
  return hash;
}

class Reader {
 public:
  Reader(pid_t pid, size_t max_bytes)
      : pid_(pid),
        page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))),
        bytes_left_(max_bytes),
        pagemap_(
            open(("/proc/" + std::to_string(pid) + "/pagemap").c_str(), O_RDONLY | O_CLOEXEC)) {}

  // Adds the pages of a mapping that are in memory to the digest. Returns false if these pages
  // cannot be read.
  bool Add(const FileMapping& mapping) {
    std::array<uint64_t, kPagesAtOnce> entries;
    for (uint64_t address = mapping.start; address < mapping.end; address += kPagesAtOnce * page_) {
      const size_t pages =
          std::min<size_t>(kPagesAtOnce, static_cast<size_t>((mapping.end - address) / page_));
      const size_t size = pages * sizeof entries[0];
      if (pread(pagemap_.get(), entries.data(), size,
                static_cast<off_t>(address / page_ * sizeof entries[0])) !=
          static_cast<ssize_t>(size))
        return false;
      for (size_t i = 0; i < pages; ++i) {
        if ((entries[i] & kPresent) != 0 && !AddPage(address + i * page_)) return false;
      }
    }
    return true;
  }

  uint64_t digest() const { return digest_ | 1; }

 private:
  bool AddPage(uint64_t address) {
    if (bytes_left_ < page_) return false;
    bytes_left_ -= page_;
    buffer_.resize(page_);
    const iovec local = {buffer_.data(), page_};
    const iovec remote = {reinterpret_cast<void*>(address), page_};
    if (process_vm_readv(pid_, &local, 1, &remote, 1, 0) != static_cast<ssize_t>(page_))
      return false;
    digest_ = Hash(digest_ ^ address, buffer_.data(), page_);
    return true;
  }

  const pid_t pid_;
  const size_t page_;
  size_t bytes_left_;
  const UniqueFd pagemap_;
  std::vector<std::byte> buffer_;
  uint64_t digest_ = 0;
};

}  // namespace

uint64_t DigestOfSharedMemory(pid_t pid, size_t max_bytes) {
  const std::optional<std::string> maps = ReadWhole("/proc/" + std::to_string(pid) + "/maps");
  if (!maps) return 0;
  Reader reader(pid, max_bytes);
  for (const FileMapping& mapping : ParseMaps(*maps, kMaxMappings)) {
    if (mapping.is_shared && !IsDevice(mapping.path) && !reader.Add(mapping)) return 0;
  }
  return reader.digest();
}

}  // namespace dslaunch
