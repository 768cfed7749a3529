// Reads the directory of a zip file whose members are stored, not compressed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/base/input_file.h"

namespace dslaunch {

struct ZipMember {
  std::string name;
  uint64_t header = 0;  // offset of the member's header in the file
  uint64_t begin = 0;   // offset of the content in the file
  uint64_t bytes = 0;
};

// Returns the members of the zip in bytes [begin, end) of `file`, sorted by offset. The file is not
// trusted and may be zip64. Throws kBadInput for members that are compressed, encrypted, beyond the
// zip's directory or overlapping, for two members of the same name, for a name that is empty or has
// a part `..`, and for more than 10^6 members.
std::vector<ZipMember> ReadZipDirectory(const InputFile& file, uint64_t begin, uint64_t end);

}  // namespace dslaunch
