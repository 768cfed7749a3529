// Checks a checkpoint's files, which are divided among the ranks so that only one rank reads each
// byte. Does not communicate; choose_together.h exchanges the reports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint_folder.h"

namespace dslaunch {

// A part of a file: the bytes [begin, end) of manifest.files[file].
struct FilePart {
  size_t file = 0;
  uint64_t begin = 0;
  uint64_t end = 0;
  bool operator==(const FilePart&) const = default;
};

// Returns the parts that `rank` of `ranks` ranks reads, in the order of the files. The
// concatenation of all files is cut into equal ranges, one for each rank, whose sizes differ by at
// most one byte. Every file, even an empty one, has exactly one part that begins at 0. Pure
// function.
std::vector<FilePart> PartsToCheck(const std::vector<FileRecord>& files, int rank, int ranks);

// The result of the checks of one rank.
struct CheckReport {
  struct PartCrc {
    size_t file = 0;
    uint32_t crc32 = 0;
  };
  // Checksums of the parts that are not whole files; at most two.
  std::vector<PartCrc> parts;

  // The steps of a check. If a file has several problems, only the problem of the earliest step is
  // reported.
  enum class Step { kRead, kChecksum, kHeader };
  struct Problem {
    size_t file = 0;
    Step step = Step::kRead;
    std::string text;  // description of the problem, which names the file
  };
  // The first problem that the rank found, at which the rank stopped; nullopt if it found no
  // problem.
  std::optional<Problem> problem;
};

// Reads and checks the parts of `rank`. Reports damage instead of throwing.
CheckReport CheckParts(const Checkpoint& checkpoint, int rank, int ranks);

// Returns the report as text for other ranks of this program.
std::string FormatReport(const CheckReport& report);
// Parses the text of FormatReport, which is not trusted. Throws TrainError kInternal, naming
// `rank`, if the text is not valid.
CheckReport ParseReport(const std::string& text, int rank);

// Returns the problem of the first damaged file, in the order of the manifest; "" if the checkpoint
// is whole. `reports` has an entry for each rank. Every rank gets the same result. Pure function.
std::string FirstDamage(const Checkpoint& checkpoint, const std::vector<CheckReport>& reports);

}  // namespace dslaunch
