// The check of a checkpoint's files, divided among the ranks: every byte is read by one rank. No
// communication here; choose_together.h exchanges the reports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint_folder.h"

namespace dslaunch {

// The bytes [begin, end) of manifest.files[file].
struct FilePart {
  size_t file = 0;
  uint64_t begin = 0;
  uint64_t end = 0;
  bool operator==(const FilePart&) const = default;
};

// What `rank` of `ranks` reads, in the order of the files. All files form one row of bytes, which
// is cut into equal parts, so no rank reads more than one byte more than another. Every file,
// including an empty one, has exactly one part that begins at 0. Pure.
std::vector<FilePart> PartsToCheck(const std::vector<FileRecord>& files, int rank, int ranks);

// The result of one rank.
struct CheckReport {
  struct PartCrc {
    size_t file = 0;
    uint32_t crc32 = 0;
  };
  // Checksums of the parts that are not a whole file; at most two.
  std::vector<PartCrc> parts;

  // In which order problems of one file count.
  enum class Step { kRead, kChecksum, kHeader };
  struct Problem {
    size_t file = 0;
    Step step = Step::kRead;
    std::string text;  // names the file
  };
  // The first problem that the rank has found; it stopped there.
  std::optional<Problem> problem;
};

// Reads and checks the parts of `rank`. Does not throw for damage.
CheckReport CheckParts(const Checkpoint& checkpoint, int rank, int ranks);

// The report as text for other ranks of this program, and the reverse for text that is not trusted:
// throws TrainError kInternal, naming `rank`.
std::string FormatReport(const CheckReport& report);
CheckReport ParseReport(const std::string& text, int rank);

// `reports` has an entry for each rank. The problem of the first damaged file, in the order of the
// manifest; empty if the checkpoint is whole. The same on every rank. Pure.
std::string FirstDamage(const Checkpoint& checkpoint, const std::vector<CheckReport>& reports);

}  // namespace dslaunch
