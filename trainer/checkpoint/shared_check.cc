#include "trainer/checkpoint/shared_check.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text/sanitize.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/safetensors.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxReportedBytes = 1000;  // maximum length in bytes of a problem's text

// Returns the first byte that `rank` reads, as an offset in the concatenation of all files.
uint64_t RowBegin(uint64_t row_bytes, int rank, int ranks) {
  const auto r = static_cast<uint64_t>(rank), n = static_cast<uint64_t>(ranks);
  return row_bytes / n * r + std::min(row_bytes % n, r);
}

// Returns an unsigned integer. Throws for any other value, whose conversion could be undefined
// behavior.
uint64_t NumberOf(const nlohmann::json& value) {
  return value.get_ref<const nlohmann::json::number_unsigned_t&>();
}

bool IsWholeFile(const FilePart& part, const FileRecord& record) {
  return part.begin == 0 && part.end == record.sum.bytes;
}

}  // namespace

std::vector<FilePart> PartsToCheck(const std::vector<FileRecord>& files, int rank, int ranks) {
  uint64_t row_bytes = 0;
  for (const FileRecord& file : files) row_bytes += file.sum.bytes;
  const uint64_t begin = RowBegin(row_bytes, rank, ranks);
  const uint64_t end = RowBegin(row_bytes, rank + 1, ranks);
  std::vector<FilePart> parts;
  uint64_t at = 0;  // offset of the file in the concatenation of all files
  for (size_t i = 0; i < files.size(); ++i) {
    const uint64_t bytes = files[i].sum.bytes;
    const uint64_t from = std::max(at, begin), to = std::min(at + bytes, end);
    // No rank's part contains an empty file, so rank 0 checks empty files.
    if (bytes == 0 ? rank == 0 : from < to) {
      parts.push_back(bytes == 0 ? FilePart{i, 0, 0} : FilePart{i, from - at, to - at});
    }
    at += bytes;
  }
  return parts;
}

CheckReport CheckParts(const Checkpoint& checkpoint, int rank, int ranks) {
  using Step = CheckReport::Step;
  CheckReport report;
  const CheckpointSlices slices(checkpoint);
  for (const FilePart& part : PartsToCheck(checkpoint.manifest.files, rank, ranks)) {
    const FileRecord& record = checkpoint.manifest.files[part.file];
    Step step = Step::kRead;
    try {
      const uint32_t crc32 = CheckedPartSum(checkpoint, record, part.begin, part.end);
      if (IsWholeFile(part, record)) {
        step = Step::kChecksum;
        if (crc32 != record.sum.crc32) RefuseInput(WrongChecksum(checkpoint, record));
      } else {
        report.parts.push_back({part.file, crc32});
      }
      step = Step::kHeader;
      if (part.begin == 0) slices.Check(record.name, SafetensorsFile(PathOf(checkpoint, record)));
    } catch (const TrainError& problem) {
      report.problem = {part.file, step, problem.what()};
      return report;
    }
  }
  return report;
}

std::string FormatReport(const CheckReport& report) {
  nlohmann::json parts = nlohmann::json::array();
  for (const auto& [file, crc32] : report.parts) parts.push_back({file, crc32});
  nlohmann::json json = {{"parts", std::move(parts)}};
  if (const auto& problem = report.problem) {
    json["problem"] = {problem->file, static_cast<int>(problem->step),
                       Truncate(problem->text, kMaxReportedBytes)};
  }
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

CheckReport ParseReport(const std::string& text, int rank) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    CheckReport report;
    for (const nlohmann::json& part : json.at("parts")) {
      report.parts.push_back({NumberOf(part.at(0)), static_cast<uint32_t>(NumberOf(part.at(1)))});
    }
    if (const auto problem = json.find("problem"); problem != json.end()) {
      const uint64_t step = std::min<uint64_t>(NumberOf(problem->at(1)), 2);
      report.problem = {NumberOf(problem->at(0)), static_cast<CheckReport::Step>(step),
                        SanitizeForTerminal(problem->at(2).get<std::string>())};
    }
    return report;
  } catch (const nlohmann::json::exception& error) {
    throw TrainError(ExitCode::kInternal,
                     "rank " + std::to_string(rank) +
                         ": its report on a checkpoint cannot be read: " + Truncate(error.what()));
  }
}

std::string FirstDamage(const Checkpoint& checkpoint, const std::vector<CheckReport>& reports) {
  using Problem = CheckReport::Problem;
  const std::vector<FileRecord>& files = checkpoint.manifest.files;
  std::optional<Problem> first;
  const auto consider = [&](const Problem& problem) {
    if (!first || std::pair(problem.file, problem.step) < std::pair(first->file, first->step)) {
      first = problem;
    }
  };
  std::vector<std::optional<uint32_t>> crcs(files.size());  // checksum of the bytes so far, by file
  std::vector<uint64_t> checked(files.size());  // number of bytes checked so far, by file
  const int ranks = static_cast<int>(reports.size());
  for (int rank = 0; rank < ranks; ++rank) {
    const CheckReport& report = reports[static_cast<size_t>(rank)];
    if (report.problem) consider(*report.problem);
    for (const FilePart& part : PartsToCheck(files, rank, ranks)) {
      const uint64_t bytes = part.end - part.begin;
      if (!IsWholeFile(part, files[part.file])) {
        const auto own = std::find_if(report.parts.begin(), report.parts.end(),
                                      [&](const auto& one) { return one.file == part.file; });
        if (own == report.parts.end()) continue;
        std::optional<uint32_t>& crc = crcs[part.file];
        crc = crc ? CombineCrc32(*crc, own->crc32, bytes) : own->crc32;
      }
      checked[part.file] += bytes;
    }
  }
  for (size_t i = 0; i < files.size(); ++i) {
    if (checked[i] != files[i].sum.bytes) {
      // The rank that should have checked this file has stopped at a problem in an earlier file.
      // That problem precedes this one, so it is reported instead.
      consider({i, CheckReport::Step::kHeader, PathOf(checkpoint, files[i]) + " was not checked"});
    } else if (crcs[i] && *crcs[i] != files[i].sum.crc32) {
      consider({i, CheckReport::Step::kChecksum, WrongChecksum(checkpoint, files[i])});
    }
  }
  return first ? first->text : "";
}

}  // namespace dslaunch
