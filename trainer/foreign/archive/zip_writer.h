// Writes a zip file whose members are stored, not compressed, as torch.save does.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/base/durable_file.h"

namespace dslaunch {

// Writes one zip at the end of a file, member by member, without going back. The content of each
// member begins at a multiple of 64 bytes from the zip's begin. Writes zip64 where numbers need it.
// Throws what NewFile throws. The file must outlive this.
class ZipWriter {
 public:
  explicit ZipWriter(NewFile& file) : file_(file) {}

  // Begins a member, which has `bytes` bytes. Precondition: the previous member is complete, and
  // the name is new.
  void Begin(const std::string& name, uint64_t bytes);
  // Writes the next bytes of the member. Precondition: bytes <= left().
  void Write(const void* data, size_t bytes);
  uint64_t left() const { return left_; }  // missing bytes of the member
  // Writes the directory, and returns the size of the zip.
  uint64_t Finish();

 private:
  struct Member {
    std::string name;
    uint64_t header = 0;  // offset in the zip
    uint64_t bytes = 0;
    uint32_t crc32 = 0;
  };
  void Put(std::string_view bytes);
  void EndMember();

  NewFile& file_;
  uint64_t at_ = 0;  // bytes written
  uint64_t left_ = 0;
  bool is_open_ = false;  // whether the last member is incomplete
  std::vector<Member> members_;
};

}  // namespace dslaunch
