// Fuzzes plans of other programs' checkpoints.
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "base/text/sanitize.h"
#include "tests/fuzz/hostile_readers.h"
#include "tests/fuzz/requirement.h"
#include "tests/support/temp_dir.h"
#include "trainer/base/durable_file.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/foreign/archive/zip_writer.h"
#include "trainer/foreign/foreign_checkpoint.h"

namespace dslaunch {
namespace {

constexpr std::string_view kSeparator = "\n=====\n";
constexpr uint64_t kMaxStorageBytes = 1 << 12;

// Writes an archive of torch.save from the text "NAME BYTES BYTES...\n" and its pickle. The members
// data/0, data/1 and so on get that many bytes each.
void WriteArchive(const std::string& folder, std::string_view part) {
  const size_t end = part.find('\n');
  if (end == std::string_view::npos) return;
  std::istringstream line{std::string(part.substr(0, end))};
  std::string name;
  line >> name;
  // Names that lead outside of the folder are skipped. So are names that are changed when they are
  // printed, because messages contain sanitized paths.
  if (name.empty() || name.front() == '.' || name.front() == '/' || name.size() > 100 ||
      name.find("..") != std::string::npos || name != SanitizeForTerminal(name)) {
    return;
  }
  const std::string path = folder + "/" + name;
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  if (error || std::filesystem::exists(path)) return;
  NewFile file(path);
  ZipWriter zip(file);
  const auto add = [&zip](const std::string& member, std::string_view content) {
    zip.Begin("archive/" + member, content.size());
    zip.Write(content.data(), content.size());
  };
  add("data.pkl", part.substr(end + 1));
  add("byteorder", "little");
  uint64_t bytes = 0;
  for (int i = 0; i < 64 && line >> bytes && bytes <= kMaxStorageBytes; ++i) {
    add("data/" + std::to_string(i), std::string(bytes, static_cast<char>(i)));
  }
  add("version", "3\n");
  zip.Finish();
}

// Fails if a slice is outside of its file, or if the slices do not cover each element once.
void RequirePlaced(const ForeignCheckpoint& plan) {
  for (const TensorRecord& tensor : plan.checkpoint.manifest.tensors) {
    const auto width = static_cast<int64_t>(DtypeBytes(tensor.dtype).value());
    int64_t next = 0;
    for (const TensorSlice& slice : tensor.slices) {
      Require(slice.shard.contiguous() && slice.shard.start == next, "slices leave a hole");
      next = slice.shard.stop;
      const auto place = plan.places.find(slice.file);
      Require(place != plan.places.end(), "a slice has no place");
      int64_t last = slice.shard.elements() - 1;
      if (!place->second.stride.empty()) {
        last = 0;
        for (size_t i = 0; i < tensor.shape.size(); ++i) {
          last += (tensor.shape[i] - 1) * place->second.stride[i];
        }
      }
      const auto end = place->second.begin + static_cast<uint64_t>((last + 1) * width);
      Require(end <= std::filesystem::file_size(place->second.path), "a slice is not in its file");
    }
    Require(next == NumElements(tensor.shape).value(), "slices lack elements");
  }
}

}  // namespace

bool PlansDeepSpeed(const std::string& parts) {
  const TempDir folder;
  for (size_t begin = 0; begin <= parts.size();) {
    const size_t end = std::min(parts.find(kSeparator, begin), parts.size());
    WriteArchive(folder.path(), std::string_view(parts).substr(begin, end - begin));
    begin = end + kSeparator.size();
  }
  try {
    RequirePlaced(PlanForeign(folder.path()));
    return true;
  } catch (const TrainError& error) {
    Require(error.code() == ExitCode::kBadInput, "bad content is not refused as bad input");
    RequireOneLine(error.what());
    return false;
  }
}

}  // namespace dslaunch
