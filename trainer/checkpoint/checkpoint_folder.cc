#include "trainer/checkpoint/checkpoint_folder.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <tuple>

#include "base/text/sanitize.h"
#include "base/unique_fd.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/safetensors.h"

namespace dslaunch {
namespace {

namespace fs = std::filesystem;

// Maximum size of a manifest, enough for about 200,000 tensors.
constexpr uintmax_t kMaxManifestBytes = 64u << 20;
constexpr char kTagPrefix[] = "step_";
constexpr char kTemporaryPrefix[] = "tmp-";
// Prefix of the name of a replaced checkpoint until it is removed: tmp-.replaced-TAG-1234abcd. Tags
// do not begin with a dot, so the temporary folder of a save never has this prefix.
constexpr char kReplacedPrefix[] = "tmp-.replaced-";
constexpr char kLatestFile[] = "latest";
// Maximum length of a tag in bytes. Temporary names are longer than tags, and file names have at
// most 255 bytes.
constexpr size_t kMaxTagBytes = 200;
constexpr size_t kSuffixBytes = 9;  // length of a temporary name's suffix "-1234abcd"

[[noreturn]] void FailIo(const std::string& path, const char* what, const std::string& why) {
  throw TrainError(ExitCode::kIo, path + ": cannot be " + what + ": " + why);
}

void Rename(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) < 0) FailIo(to, "made", std::strerror(errno));
}

// Creates a folder and its missing parents. Each parent is synced, so that the folders survive a
// power failure.
void MakeFolders(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return;
  const fs::path above = fs::absolute(path).parent_path();
  MakeFolders(above);
  if (!fs::create_directory(path, error) && error) FailIo(path, "made", error.message());
  SyncFolder(above);
}

// Throws if the folder exists but cannot be listed. Otherwise the folder would appear empty, and
// training would start at step 1.
void CheckListable(const std::string& folder) {
  std::error_code error;
  const fs::directory_iterator names(folder, error);
  if (error && error != std::errc::no_such_file_or_directory) {
    FailIo(folder, "read", error.message());
  }
}

Manifest ReadManifest(const std::string& folder) {
  const std::string file = folder + "/" + kManifestFile;
  std::error_code error;
  const bool is_file = fs::is_regular_file(file, error);
  const uintmax_t bytes = is_file ? fs::file_size(file, error) : 0;
  if (bytes > kMaxManifestBytes) {
    throw TrainError(ExitCode::kBadInput, file + ": has " + std::to_string(bytes) +
                                              " bytes; at most " +
                                              std::to_string(kMaxManifestBytes) + " are read");
  }
  std::ifstream stream;
  std::ostringstream text;
  if (is_file) stream.open(file, std::ios::binary);
  if (!stream.is_open() || error || (bytes > 0 && !(text << stream.rdbuf()))) {
    throw TrainError(ExitCode::kBadInput, file + ": cannot be read");
  }
  return ParseManifest(text.str(), file);
}

std::string Joined(const std::vector<std::string>& parts, const char* between) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : between) + part;
  return text;
}

// Returns the reason and the skipped checkpoints as one line. `skipped` may have names that other
// programs chose, so control characters are removed.
std::string WithSkipped(const std::string& reason, const std::vector<std::string>& skipped) {
  return SanitizeForTerminal(skipped.empty() ? reason
                                             : reason + "; skipped " + Joined(skipped, "; "));
}

std::vector<std::string> Described(const std::vector<CheckpointFolder::Damaged>& damaged) {
  std::vector<std::string> texts;
  for (const auto& [tag, problem] : damaged) texts.push_back(tag + ": " + problem);
  return texts;
}

std::string TagsOf(const std::vector<Checkpoint>& checkpoints) {
  std::vector<std::string> tags;
  for (const Checkpoint& one : checkpoints) tags.push_back(one.tag);
  return tags.empty() ? "none" : Joined(tags, ", ");
}

std::string WrongSize(const std::string& path, uint64_t bytes, const FileRecord& record) {
  return path + " has " + std::to_string(bytes) + " bytes of " + std::to_string(record.sum.bytes);
}

// Checks that all files of a save are in its folder with the sizes that their writers reported.
// Does not follow links, because only files in the folder itself are part of the checkpoint. Throws
// kIo.
void CheckFilesThere(const std::string& folder, const Manifest& manifest) {
  const UniqueFd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) FailIo(folder, "read", std::strerror(errno));
  for (const FileRecord& record : manifest.files) {
    const std::string path = folder + "/" + record.name;
    const UniqueFd file(
        openat(fd.get(), record.name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    struct stat info;
    if (!file || fstat(file.get(), &info) < 0) FailIo(path, "read", std::strerror(errno));
    if (!S_ISREG(info.st_mode)) FailIo(path, "read", "it is not a file");
    const auto bytes = static_cast<uint64_t>(info.st_size);
    if (bytes != record.sum.bytes) {
      throw TrainError(ExitCode::kIo, WrongSize(path, bytes, record) + " that were written");
    }
  }
}

void VerifyFile(const Checkpoint& checkpoint, const FileRecord& record,
                const CheckpointSlices& slices) {
  if (CheckedPartSum(checkpoint, record, 0, record.sum.bytes) != record.sum.crc32) {
    RefuseInput(WrongChecksum(checkpoint, record));
  }
  slices.Check(record.name, SafetensorsFile(PathOf(checkpoint, record)));
}

// Implements CheckpointFolder::Judge for a process that decides without other ranks.
std::string JudgeAlone(const ResumeDecision& decision) {
  if (!decision.checkpoint) return "";
  try {
    VerifyCheckpoint(*decision.checkpoint);
    return "";
  } catch (const TrainError& damage) {
    return damage.what();
  }
}

}  // namespace

std::string TagOf(int64_t step) {
  char tag[32];
  std::snprintf(tag, sizeof tag, "%s%06lld", kTagPrefix, static_cast<long long>(step));
  return tag;
}

std::string TagSuffix(const std::vector<Checkpoint>& whole, const std::string& run_id,
                      const Checkpoint* resumed) {
  const std::string suffix = "-" + run_id.substr(0, 8);
  if (resumed != nullptr && resumed->tag.ends_with(suffix)) return suffix;
  const int64_t done = resumed == nullptr ? 0 : resumed->manifest.position.step;
  const bool is_taken = std::ranges::any_of(whole, [&](const Checkpoint& other) {
    const int64_t step = other.manifest.position.step;
    return other.manifest.run_id != run_id && step > done && other.tag == TagOf(step);
  });
  return is_taken ? suffix : "";
}

bool IsTag(const std::string& tag) {
  return !tag.empty() && tag.front() != '.' && tag.find('/') == std::string::npos &&
         tag.find('\0') == std::string::npos && tag.size() <= kMaxTagBytes &&
         !tag.starts_with(kTemporaryPrefix) && tag != kLatestFile && tag != kLeaseFile;
}

std::vector<Checkpoint> OrderCandidates(const ResumeRequest& request,
                                        std::vector<Checkpoint> whole) {
  using Kind = ResumeRequest::Kind;
  std::sort(whole.begin(), whole.end(), [](const Checkpoint& a, const Checkpoint& b) {
    return std::tie(a.manifest.serial, a.manifest.position.step) >
           std::tie(b.manifest.serial, b.manifest.position.step);
  });
  std::vector<Checkpoint> order;
  // Moves the wanted checkpoints from `whole` to `order`.
  const auto take = [&](const auto& wanted) {
    for (const Checkpoint& one : whole) {
      if (wanted(one)) order.push_back(one);
    }
    std::erase_if(whole, wanted);
  };
  take([&](const Checkpoint& one) {
    return !request.started_by.empty() && one.manifest.started_by == request.started_by;
  });
  take([&](const Checkpoint& one) {
    return request.kind == Kind::kAuto ||
           (request.restarted && one.manifest.job_id == request.job_id);
  });
  take([&](const Checkpoint& one) { return request.kind == Kind::kTag && one.tag == request.tag; });
  return order;
}

void CheckpointFolder::Make() const {
  MakeFolders(path_);
  if (access(path_.c_str(), R_OK | W_OK | X_OK) < 0) FailIo(path_, "used", std::strerror(errno));
}

std::vector<std::string> CheckpointFolder::RemoveLeftovers() const {
  std::error_code error;
  std::vector<fs::path> left;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_, error)) {
    if (entry.path().filename().string().starts_with(kTemporaryPrefix)) left.push_back(entry);
  }
  std::vector<std::string> removed;
  for (const fs::path& path : left) {
    ConfirmLease();
    if (PutBack(path.filename())) continue;
    // A leftover that cannot be removed does not affect later saves, so errors are ignored.
    if (fs::remove_all(path, error) > 0 && !error) removed.push_back(path.filename());
  }
  return removed;
}

bool CheckpointFolder::PutBack(const std::string& name) const {
  constexpr size_t kPrefixBytes = sizeof kReplacedPrefix - 1;
  if (!name.starts_with(kReplacedPrefix) || name.size() <= kPrefixBytes + kSuffixBytes) {
    return false;
  }
  const std::string tag = name.substr(kPrefixBytes, name.size() - kPrefixBytes - kSuffixBytes);
  std::error_code error;
  if (!IsTag(tag) || fs::exists(path_ + "/" + tag, error) || error) return false;
  Rename(path_ + "/" + name, path_ + "/" + tag);
  SyncFolder(path_);
  return true;
}

CheckpointFolder::Listing CheckpointFolder::List() const {
  Listing listing;
  CheckListable(path_);
  std::error_code error;
  std::vector<std::string> tags;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_, error)) {
    const std::string name = entry.path().filename().string();
    // A program may choose any tag, and the folder may contain other folders, so a folder counts
    // only if it has the usual prefix or a manifest.
    if (IsTag(name) && entry.is_directory(error) &&
        (name.starts_with(kTagPrefix) || fs::exists(entry.path() / kManifestFile, error))) {
      tags.push_back(name);
    }
  }
  std::sort(tags.begin(), tags.end());
  for (const std::string& tag : tags) {
    const std::string folder = path_ + "/" + tag;
    try {
      listing.whole.push_back(ReadCheckpoint(folder));
    } catch (const TrainError& damage) {
      listing.damaged.push_back({tag, damage.what()});
    }
  }
  return listing;
}

ResumeDecision CheckpointFolder::Choose(const ResumeRequest& request) {
  return Choose(request, List(), JudgeAlone);
}

ResumeDecision CheckpointFolder::ChooseTag(const std::string& tag) {
  return ChooseTag(tag, List(), JudgeAlone);
}

ResumeDecision CheckpointFolder::Choose(const ResumeRequest& request, const Listing& listing,
                                        const Judge& judge) {
  using Kind = ResumeRequest::Kind;
  const auto without = [&](const std::vector<std::string>& skipped) -> ResumeDecision {
    if (request.kind == Kind::kTag) {
      return {ResumeDecision::Kind::kRefused,
              {},
              "--resume " + request.tag + ": no complete checkpoint of this name in " + path_ +
                  " (complete: " + TagsOf(listing.whole) + ")"};
    }
    if (request.kind == Kind::kAuto && !skipped.empty()) {
      return {ResumeDecision::Kind::kRefused,
              {},
              "no checkpoint in " + path_ + " is complete; to start at step 1 give --resume none"};
    }
    return {ResumeDecision::Kind::kFresh,
            {},
            request.kind == Kind::kNone ? "starting at step 1: --resume none"
                                        : "starting at step 1: no checkpoint in " + path_ + " yet"};
  };
  return FirstWhole(OrderCandidates(request, listing.whole), Described(listing.damaged),
                    "resuming from ", judge, without);
}

ResumeDecision CheckpointFolder::ChooseTag(const std::string& tag, const Listing& listing,
                                           const Judge& judge) {
  const std::string wanted = tag.empty() ? ReadLatest() : tag;
  std::vector<Checkpoint> order;
  for (const Checkpoint& one : OrderCandidates({}, listing.whole)) {
    if (one.tag == wanted) {
      order.insert(order.begin(), one);
    } else if (tag.empty()) {
      order.push_back(one);
    }
  }
  const auto without = [&](const std::vector<std::string>& skipped) -> ResumeDecision {
    if (tag.empty() && skipped.empty()) {
      return {ResumeDecision::Kind::kFresh, {}, "no checkpoint in " + path_ + " yet"};
    }
    return {ResumeDecision::Kind::kRefused,
            {},
            tag.empty() ? "no checkpoint in " + path_ + " is complete"
                        : "no complete checkpoint " + tag + " in " + path_ +
                              " (complete: " + TagsOf(listing.whole) + ")"};
  };
  return FirstWhole(order, Described(listing.damaged), "loading ", judge, without);
}

ResumeDecision CheckpointFolder::FirstWhole(
    const std::vector<Checkpoint>& candidates, std::vector<std::string> skipped,
    const std::string& verb, const Judge& judge,
    const std::function<ResumeDecision(const std::vector<std::string>&)>& without) {
  for (const Checkpoint& candidate : candidates) {
    const ResumeDecision decision = {ResumeDecision::Kind::kResume, candidate,
                                     WithSkipped(verb + candidate.folder, skipped)};
    const std::string damage = judge(decision);
    if (damage.empty()) {
      known_whole_.insert(candidate.manifest.serial);
      return decision;
    }
    skipped.push_back(candidate.tag + ": " + damage);
  }
  ResumeDecision decision = without(skipped);
  decision.reason = WithSkipped(decision.reason, skipped);
  judge(decision);
  return decision;
}

std::string CheckpointFolder::ReadLatest() const {
  const std::string file = path_ + "/" + kLatestFile;
  const UniqueFd fd(open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  char text[kMaxTagBytes + 1];
  const ssize_t bytes = fd ? read(fd.get(), text, sizeof text) : 0;
  const std::string tag(text, static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
  // An editor may have added a newline, so only the first line is the tag.
  return tag.substr(0, tag.find('\n'));
}

std::string CheckpointFolder::TemporaryName(const std::string& tag) const {
  char random[16];
  std::snprintf(random, sizeof random, "%08x", std::random_device()());
  return path_ + "/" + kTemporaryPrefix + tag + "-" + random;
}

std::string CheckpointFolder::BegunPath(const std::string& tag, const std::string& save) const {
  char suffix[kSuffixBytes + 1];
  std::snprintf(suffix, sizeof suffix, "-%08x", Crc32(save.data(), save.size()));
  return path_ + "/" + kTemporaryPrefix + tag + suffix;
}

void CheckpointFolder::Begin(const std::string& begun) const {
  ConfirmLease();
  std::error_code error;
  if (!fs::create_directory(begun, error)) {
    FailIo(begun, "made", error ? error.message() : "it exists");
  }
}

void CheckpointFolder::Abandon(const std::string& begun) const {
  std::error_code ignored;
  fs::remove_all(begun, ignored);
}

void CheckpointFolder::Commit(const std::string& begun, const std::string& tag, Manifest manifest) {
  manifest.serial = 1;
  for (const Checkpoint& other : List().whole) {
    manifest.serial = std::max(manifest.serial, other.manifest.serial + 1);
  }
  const std::string text = FormatManifest(manifest);
  const std::string manifest_file = begun + "/" + kManifestFile;
  ParseManifest(text, manifest_file);  // throws if the ranks' reports contradict each other
  CheckFilesThere(begun, manifest);
  WriteNewFile(manifest_file, text);
  SyncFolder(begun);
  ConfirmLease();
  Publish(begun, tag);
  known_whole_.insert(manifest.serial);
}

void CheckpointFolder::Settle(const std::string& tag, const std::string& run_id,
                              int64_t keep) const {
  WriteLatest(tag);
  Prune(run_id, keep);
}

void CheckpointFolder::Publish(const std::string& begun, const std::string& tag) const {
  const std::string folder = path_ + "/" + tag;
  if (!fs::exists(folder)) {
    Rename(begun, folder);
    SyncFolder(path_);
    return;
  }
  // The names are exchanged, so that one of the two checkpoints has the tag at every moment.
  // Network file systems cannot exchange names, so two renames follow there. If the process dies
  // between the two renames, RemoveLeftovers restores the tag of the old checkpoint.
  const auto exchange = [&] {
    return renameat2(AT_FDCWD, begun.c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE) == 0;
  };
  if (exchange()) {
    try {
      SyncFolder(path_);
    } catch (const TrainError&) {
      // Undoes the exchange, because the tag on the disk may still name the old checkpoint.
      exchange();
      throw;
    }
    Abandon(begun);
    return;
  }
  const std::string aside = TemporaryName(".replaced-" + tag);
  Rename(folder, aside);
  Rename(begun, folder);
  SyncFolder(path_);
  Abandon(aside);
}

void CheckpointFolder::WriteLatest(const std::string& tag) const {
  ConfirmLease();  // needed because a later owner of the lease would remove the temporary file
  const std::string temporary = TemporaryName(kLatestFile);
  WriteNewFile(temporary, tag);
  Rename(temporary, path_ + "/" + kLatestFile);
  SyncFolder(path_);
}

void CheckpointFolder::Prune(const std::string& run_id, int64_t keep) const {
  std::vector<Checkpoint> own;
  for (Checkpoint& one : OrderCandidates({}, List().whole)) {
    if (one.manifest.run_id == run_id) own.push_back(std::move(one));
  }
  int64_t kept = 0;
  for (const Checkpoint& one : own) {
    if (kept < keep) {
      kept += known_whole_.contains(one.manifest.serial) ? 1 : 0;
      continue;
    }
    // A partly removed checkpoint would be listed as damaged under its tag, so the checkpoint is
    // renamed before it is removed.
    const std::string aside = TemporaryName(one.tag);
    ConfirmLease();
    Rename(one.folder, aside);
    Remove(aside);
  }
}

void CheckpointFolder::Remove(const std::string& folder) const {
  std::error_code error;
  fs::remove_all(folder, error);
  if (error) FailIo(folder, "removed", error.message());
}

Checkpoint ReadCheckpoint(const std::string& folder) {
  const fs::path path = fs::path(folder).lexically_normal();
  return {folder, path.has_filename() ? path.filename() : path.parent_path().filename(),
          ReadManifest(folder)};
}

std::string PathOf(const Checkpoint& checkpoint, const FileRecord& record) {
  return checkpoint.folder + "/" + record.name;
}

std::string WrongChecksum(const Checkpoint& checkpoint, const FileRecord& record) {
  return PathOf(checkpoint, record) + ": its checksum is wrong; it is damaged";
}

uint32_t CheckedPartSum(const Checkpoint& checkpoint, const FileRecord& record, uint64_t begin,
                        uint64_t end) {
  const std::string path = PathOf(checkpoint, record);
  const PartSum sum = SumPart(path, begin, end);
  if (sum.file_bytes != record.sum.bytes) RefuseInput(WrongSize(path, sum.file_bytes, record));
  return sum.crc32;
}

CheckpointSlices::CheckpointSlices(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {
  for (const TensorRecord& tensor : checkpoint.manifest.tensors) {
    for (const TensorSlice& slice : tensor.slices)
      by_file_[slice.file].push_back({&tensor, &slice});
  }
}

void CheckpointSlices::Check(const std::string& name, const SafetensorsFile& file) const {
  const auto own = by_file_.find(name);
  if (own == by_file_.end()) return;
  for (const auto& [tensor, slice] : own->second) {
    const auto found = file.tensors().find(tensor->name);
    if (found == file.tensors().end() || found->second.dtype != tensor->dtype ||
        NumElements(found->second.shape) != slice->shard.elements()) {
      RefuseInput(checkpoint_.folder + "/" + name + ": tensor " + Truncate(tensor->name) +
                  " differs from its record in " + kManifestFile);
    }
  }
}

void VerifyCheckpoint(const Checkpoint& checkpoint) {
  const CheckpointSlices slices(checkpoint);
  for (const FileRecord& file : checkpoint.manifest.files) VerifyFile(checkpoint, file, slices);
}

std::vector<std::string> FindDamage(const Checkpoint& checkpoint) {
  const CheckpointSlices slices(checkpoint);
  std::vector<std::string> problems;
  for (const FileRecord& file : checkpoint.manifest.files) {
    try {
      VerifyFile(checkpoint, file, slices);
    } catch (const TrainError& damage) {
      problems.push_back(damage.what());
    }
  }
  return problems;
}

std::vector<std::string> FindMissing(const Checkpoint& checkpoint) {
  std::vector<std::string> problems;
  for (const FileRecord& file : checkpoint.manifest.files) {
    const std::string path = PathOf(checkpoint, file);
    std::error_code error;
    const uint64_t bytes = fs::file_size(path, error);
    if (error) {
      problems.push_back(path + ": " + error.message());
    } else if (bytes != file.sum.bytes) {
      problems.push_back(WrongSize(path, bytes, file));
    }
  }
  return problems;
}

}  // namespace dslaunch
