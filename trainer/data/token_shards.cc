#include "trainer/data/token_shards.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <stdexcept>
#include <utility>

#include "trainer/data/data_file.h"

namespace dslaunch {
namespace {

// Limits the files of a folder, because Linux maps at most 65530 ranges in a process.
constexpr size_t kMostShards = 10000;
constexpr char kDataEnding[] = ".bin";
constexpr char kIndexEnding[] = ".idx";

// Returns the names of the files in `folder` that end in `ending`, without that ending.
std::set<std::string> StemsOf(const std::string& folder, const std::string& ending) {
  std::set<std::string> stems;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    std::error_code ignored;
    if (!name.ends_with(ending) || !at->is_regular_file(ignored)) continue;
    stems.insert(name.substr(0, name.size() - ending.size()));
  }
  if (error) {
    throw TrainError(ExitCode::kIo, folder + ": cannot be listed: " + error.message());
  }
  return stems;
}

void CheckShards(const std::string& folder, const std::set<std::string>& stems) {
  const std::string move =
      "; move the files for the evaluation to a folder of their own, and give it as data.val_path";
  if (stems.empty()) RefuseDataFile(folder, "has no files of tokens, whose names end in .bin");
  if (stems.size() > kMostShards) {
    RefuseDataFile(folder, "has " + std::to_string(stems.size()) + " files of tokens; at most " +
                               std::to_string(kMostShards) + " are supported, so join some");
  }
  for (const std::string& index : StemsOf(folder, kIndexEnding)) {
    if (!stems.contains(index)) {
      RefuseDataFile(folder + "/" + index + kIndexEnding,
                     "is the index of " + index + kDataEnding + ", which is missing; copy both");
    }
  }
  const auto with = [&](const char* word) {
    return std::ranges::find_if(
        stems, [&](const std::string& stem) { return stem.find(word) != std::string::npos; });
  };
  const auto train = with("train"), val = with("val");
  if (train != stems.end() && val != stems.end() && train != val) {
    RefuseDataFile(folder, "has " + *train + kDataEnding + " and " + *val + kDataEnding +
                               ", so training and evaluation would share data" + move);
  }
}

}  // namespace

TokenShards TokenShards::OpenText(const std::string& path) {
  TokenShards shards(path);
  shards.Add(TokenStream::OpenText(path));
  return shards;
}

TokenShards TokenShards::OpenTokens(const std::string& path, const std::string& alone) {
  std::error_code ignored;
  const std::string file = path + "/" + alone + kDataEnding;
  TokenShards shards(path);
  if (!std::filesystem::is_directory(path, ignored)) {
    shards.Add(TokenStream::OpenTokens(path));
  } else if (FileExists(file)) {
    shards.path_ = file;
    shards.Add(TokenStream::OpenTokens(file));
  } else {
    const std::set<std::string> stems = StemsOf(path, kDataEnding);
    CheckShards(path, stems);
    for (const std::string& stem : stems) {
      shards.Add(TokenStream::OpenTokens(path + "/" + stem + kDataEnding));
    }
  }
  return shards;
}

void TokenShards::Add(TokenStream stream) {
  const int64_t tokens = stream.size();
  shards_.push_back({size_, std::move(stream)});
  size_ += tokens;
}

void TokenShards::Read(int64_t begin, std::span<int64_t> out, int64_t vocab_size) const {
  if (begin < 0 || begin > size_ || static_cast<int64_t>(out.size()) > size_ - begin) {
    throw std::out_of_range(path_ + ": tokens beyond the end of the data");
  }
  auto shard = std::upper_bound(shards_.begin(), shards_.end(), begin,
                                [](int64_t at, const Shard& later) { return at < later.begin; });
  for (--shard; !out.empty(); ++shard) {
    const int64_t skip = begin - shard->begin;
    const auto count = std::min(out.size(), static_cast<size_t>(shard->stream.size() - skip));
    shard->stream.Read(skip, out.first(count), vocab_size);
    out = out.subspan(count);
    begin += static_cast<int64_t>(count);
  }
}

}  // namespace dslaunch
