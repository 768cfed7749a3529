#include "cli/session/copy_list.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <utility>

#include "base/digest/sha256.h"
#include "base/errno_text.h"
#include "base/text/hex.h"
#include "base/text/sanitize.h"
#include "base/unique_fd.h"
#include "proto/contract/copies.h"

namespace dslaunch {
namespace {

namespace fs = std::filesystem;

Error Bad(const char* option, const std::string& path, const std::string& why) {
  return Error{ExitCode::kBadInput, std::string(option) + " " + Quoted(path) + ": " + why};
}

bool IsBelow(const fs::path& path, const fs::path& folder) {
  const fs::path way = path.lexically_relative(folder);
  return !way.empty() && *way.begin() != "..";
}

std::string Trimmed(const fs::path& path) {
  std::string text = path.lexically_normal().string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

// Returns the path of `path` below the folder of the copies; empty if `path` is `cwd`, which
// becomes that folder itself.
std::string NameOf(const std::string& path, const std::string& cwd) {
  if (path == cwd) return "";
  return IsBelow(path, cwd) ? fs::path(path).lexically_relative(cwd).string()
                            : fs::path(path).filename().string();
}

class Lister {
 public:
  explicit Lister(std::string cwd) : cwd_(std::move(cwd)) {}

  Result<void> AddFile(const std::string& typed) {
    constexpr char kOption[] = "--copy";
    const std::string path = Trimmed(fs::path(cwd_) / typed);
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) return Bad(kOption, typed, ErrnoText(errno));
    if (S_ISDIR(status.st_mode))
      return Bad(kOption, typed, "it is a folder; --copy_dir copies folders");
    if (!S_ISREG(status.st_mode)) return Bad(kOption, typed, "it is no regular file");
    const std::string name = NameOf(path, cwd_);
    DSL_TRY(AddParents(name));
    return Add(kOption, name, path, status);
  }

  Result<void> AddFolder(const std::string& typed) {
    constexpr char kOption[] = "--copy_dir";
    const std::string path = Trimmed(fs::path(cwd_) / typed);
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) return Bad(kOption, typed, ErrnoText(errno));
    if (!S_ISDIR(status.st_mode))
      return Bad(kOption, typed, "it is no folder; --copy copies files");
    const std::string name = NameOf(path, cwd_);
    if (path == "/") return Bad(kOption, typed, "this would copy the whole machine");
    DSL_TRY(AddParents(name));
    if (!name.empty()) DSL_TRY(Add(kOption, name, path, status));
    std::error_code error;
    const fs::path root = fs::canonical(path, error);
    if (error) return Bad(kOption, typed, error.message());
    fs::recursive_directory_iterator at(path, error);
    for (const fs::recursive_directory_iterator end; !error && at != end; at.increment(error))
      DSL_TRY(AddBelow(kOption, name, path, root, at->path()));
    if (error) return Error{ExitCode::kIo, "--copy_dir " + Quoted(typed) + ": " + error.message()};
    return {};
  }

  Result<std::shared_ptr<const CopyList>> Finish() {
    auto list = std::make_shared<CopyList>();
    Sha256 key;
    for (auto& [name, found] : found_) {
      pb::CopyEntry& entry = found.entry;
      if (entry.kind() == pb::CopyEntry::FILE) {
        DSL_TRY(ReadFile(found));
        ++list->num_files;
        list->bytes += entry.size();
      }
      pb::CopyEntry timeless = entry;
      timeless.clear_modified_ns();
      const std::string text = timeless.SerializeAsString();
      key.Add(std::to_string(text.size()) + ":" + text);
      list->entries.push_back(std::move(entry));
      list->sources.push_back(found.source);
    }
    list->key = ToHex(key.Finish());
    return std::shared_ptr<const CopyList>(std::move(list));
  }

 private:
  struct Found {
    pb::CopyEntry entry;
    std::string source;
    bool follows = false;  // whether the source may be a symbolic link, because the user named it
  };

  // Adds the folders that contain `name`, because an entry below the working folder needs them.
  Result<void> AddParents(const std::string& name) {
    for (size_t slash = name.find('/'); slash != std::string::npos;
         slash = name.find('/', slash + 1)) {
      const std::string folder = name.substr(0, slash);
      struct stat status {};
      if (::stat((cwd_ + "/" + folder).c_str(), &status) != 0) continue;
      DSL_TRY(Add("--copy", folder, cwd_ + "/" + folder, status));
    }
    return {};
  }

  Result<void> AddBelow(const char* option, const std::string& name, const std::string& path,
                        const fs::path& root, const fs::path& found) {
    struct stat status {};
    if (::lstat(found.c_str(), &status) != 0) return Bad(option, found.string(), ErrnoText(errno));
    const std::string below = found.lexically_relative(path).string();
    const std::string full = name.empty() ? below : name + "/" + below;
    if (S_ISLNK(status.st_mode)) return AddLink(option, full, root, found);
    if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) {
      return Bad(option, found.string(),
                 "it is a socket, pipe or device, which cannot be copied; move it elsewhere");
    }
    return Add(option, full, found.string(), status, /*follows=*/false);
  }

  Result<void> AddLink(const char* option, const std::string& name, const fs::path& root,
                       const fs::path& found) {
    std::error_code error;
    const fs::path target = fs::read_symlink(found, error);
    const fs::path leads_to =
        error ? fs::path() : fs::weakly_canonical(found.parent_path() / target, error);
    if (error) return Bad(option, found.string(), error.message());
    if (target.is_absolute() || (leads_to != root && !IsBelow(leads_to, root))) {
      return Bad(option, found.string(),
                 "this link leads out of the folder, to " + Quoted(target.string()) +
                     ", which nodes do not have; remove it, or put what it names in its place");
    }
    pb::CopyEntry entry;
    entry.set_kind(pb::CopyEntry::LINK);
    entry.set_path(name);
    entry.set_target(target.string());
    return Put(option, {std::move(entry), found.string()});
  }

  Result<void> Add(const char* option, const std::string& name, const std::string& source,
                   const struct stat& status, bool follows = true) {
    pb::CopyEntry entry;
    entry.set_kind(S_ISDIR(status.st_mode) ? pb::CopyEntry::FOLDER : pb::CopyEntry::FILE);
    entry.set_path(name);
    entry.set_mode(status.st_mode & kCopyModeBits);
    if (S_ISREG(status.st_mode)) {
      entry.set_size(static_cast<uint64_t>(status.st_size));
      entry.set_modified_ns(int64_t{status.st_mtim.tv_sec} * 1'000'000'000 +
                            status.st_mtim.tv_nsec);
    }
    return Put(option, {std::move(entry), source, follows});
  }

  Result<void> Put(const char* option, Found found) {
    const std::string name = found.entry.path();
    const auto [at, is_new] = found_.try_emplace(name, found);
    if (!is_new && at->second.source != found.source) {
      return Bad(option, found.source,
                 "it would have the same name on the nodes as " + Quoted(at->second.source) +
                     "; start in a folder that both are below");
    }
    if (found_.size() <= kMaxCopyEntries) return {};
    return Bad(option, found.source, "these are more than a million files and folders");
  }

  Result<void> ReadFile(Found& found) const {
    pb::CopyEntry& entry = found.entry;
    const UniqueFd file(
        ::open(found.source.c_str(), O_RDONLY | O_CLOEXEC | (found.follows ? 0 : O_NOFOLLOW)));
    if (!file)
      return Error{ExitCode::kIo, "cannot read " + Quoted(found.source) + ": " + ErrnoText(errno)};
    Sha256 sum;
    const Result<uint64_t> read = AddFromFile(file.get(), entry.size() + 1, sum);
    if (!read.ok()) {
      return Error{ExitCode::kIo,
                   "cannot read " + Quoted(found.source) + ": " + read.error().message};
    }
    if (*read != entry.size())
      return Error{ExitCode::kIo, Quoted(found.source) + " changes while it is read; try again"};
    entry.set_sha256(sum.Finish());
    return {};
  }

  const std::string cwd_;
  std::map<std::string, Found> found_;  // entries by name; a folder precedes its content
};

}  // namespace

std::string CopyList::PlaceOf(const std::string& path, const std::string& cwd) const {
  const std::string full = Trimmed(fs::path(cwd) / path);
  for (size_t i = 0; i < entries.size(); ++i) {
    if (sources[i] == full) return entries[i].path();
  }
  return "";
}

Result<std::shared_ptr<const CopyList>> ListCopies(const std::vector<std::string>& files,
                                                   const std::vector<std::string>& folders,
                                                   const std::string& cwd) {
  Lister lister(Trimmed(cwd));
  for (const std::string& file : files) DSL_TRY(lister.AddFile(file));
  for (const std::string& folder : folders) DSL_TRY(lister.AddFolder(folder));
  return lister.Finish();
}

}  // namespace dslaunch
