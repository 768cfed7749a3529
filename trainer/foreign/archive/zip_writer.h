// Writes a zip file whose members are stored without compression, as in files of torch.save.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/base/durable_file.h"

namespace dslaunch {

// Writes one zip at the end of a file, member by member, without seeking back. The content of each
// member begins at a multiple of 64 bytes from the beginning of the zip. Writes zip64 if numbers
// need it. Throws TrainError kIo, naming the file, if it cannot be written. The file must outlive
// this object.
class ZipWriter {
 public:
  explicit ZipWriter(NewFile& file) : file_(file) {}

  // Begins a member of `bytes` bytes. Precondition: the previous member is complete, and no member
  // is called `name` yet.
  void Begin(const std::string& name, uint64_t bytes);
  // Writes the next bytes of the member that was begun last. Precondition: bytes <= left().
  void Write(const void* data, size_t bytes);
  // Returns the number of bytes of the last member that have not been written yet.
  uint64_t left() const { return left_; }
  // Writes the directory and returns the size of the zip in bytes.
  uint64_t Finish();

 private:
  struct Member {
    std::string name;
    uint64_t header = 0;  // offset of the member's header in the zip
    uint64_t bytes = 0;
    uint32_t crc32 = 0;
  };
  void Put(std::string_view bytes);
  void EndMember();

  NewFile& file_;
  uint64_t at_ = 0;  // number of bytes of the zip that have been written
  uint64_t left_ = 0;
  bool is_open_ = false;  // true if the last member is incomplete
  std::vector<Member> members_;
};

}  // namespace dslaunch
