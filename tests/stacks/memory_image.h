// Contains a recorded image of the memory of a Python process, as read_stacks --record writes it.
// The image begins with the relevant lines of /proc/PID/maps, a line "tids N...", and an empty
// line. For each read, the address (8 bytes), the size (4 bytes) and the content follow.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "agent/stacks/memory_reader.h"
#include "agent/stacks/process_maps.h"

namespace dslaunch {

class MemoryImage final : public MemoryReader {
 public:
  // Accepts any bytes, and ignores malformed records.
  explicit MemoryImage(const std::string& bytes) {
    const size_t end = std::min(bytes.find("\n\n"), bytes.size());
    const std::string head = bytes.substr(0, end);
    constexpr size_t kMaxMappings = 100;
    maps_ = ParseMaps(head, kMaxMappings);
    std::istringstream tids(head.substr(std::min(head.rfind("tids "), head.size())));
    std::string word;
    tids >> word;
    for (pid_t tid = 0; tids >> tid;) tids_.push_back(tid);
    size_t at = end + 2;
    while (at + sizeof(uint64_t) + sizeof(uint32_t) <= bytes.size()) {
      uint64_t address = 0;
      uint32_t size = 0;
      std::memcpy(&address, bytes.data() + at, sizeof address);
      std::memcpy(&size, bytes.data() + at + sizeof address, sizeof size);
      at += sizeof address + sizeof size;
      const std::string content = bytes.substr(at, size);
      for (size_t i = 0; i < content.size(); ++i)
        memory_[address + i] = static_cast<std::byte>(content[i]);
      at += content.size();
    }
  }

  bool Read(uint64_t address, std::span<std::byte> out) override {
    ++reads_;
    for (size_t i = 0; i < out.size(); ++i) {
      const auto found = memory_.find(address + i);
      if (found == memory_.end()) return false;
      out[i] = found->second;
    }
    return true;
  }

  template <class T>
  void Write(uint64_t address, const T& value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    for (size_t i = 0; i < bytes.size(); ++i) memory_[address + i] = bytes[i];
  }

  const std::vector<FileMapping>& maps() const { return maps_; }
  const std::vector<pid_t>& tids() const { return tids_; }
  size_t reads() const { return reads_; }

 private:
  std::vector<FileMapping> maps_;
  std::vector<pid_t> tids_;
  std::map<uint64_t, std::byte> memory_;
  size_t reads_ = 0;
};

// Records every successful read of another memory.
class RecordingMemory final : public MemoryReader {
 public:
  explicit RecordingMemory(MemoryReader& memory) : memory_(memory) {}

  bool Read(uint64_t address, std::span<std::byte> out) override {
    if (!memory_.Read(address, out)) return false;
    const auto size = static_cast<uint32_t>(out.size());
    records_.append(reinterpret_cast<const char*>(&address), sizeof address);
    records_.append(reinterpret_cast<const char*>(&size), sizeof size);
    records_.append(reinterpret_cast<const char*>(out.data()), out.size());
    return true;
  }

  const std::string& records() const { return records_; }

 private:
  MemoryReader& memory_;
  std::string records_;
};

}  // namespace dslaunch
