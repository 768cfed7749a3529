// The directory of a zip file whose members are stored, not compressed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/base/input_file.h"

namespace dslaunch {

struct ZipMember {
  std::string name;
  uint64_t header = 0;  // offset of the member with its header, in bytes
  uint64_t begin = 0;   // offset of the content
  uint64_t bytes = 0;
};

// Returns the members of the zip in bytes [begin, end) of `file`, which is not trusted, in the
// order of their offsets; also reads zip64. Refuses, with kBadInput: members that are compressed,
// encrypted, beyond the zip's directory or overlapping, two of a name, a name with a part `..` or
// none, and more than 10^6 members.
std::vector<ZipMember> ReadZipDirectory(const InputFile& file, uint64_t begin, uint64_t end);

}  // namespace dslaunch
