#include "base/os/ownership.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <deque>
#include <string_view>
#include <utility>

#include "base/os/accounts.h"
#include "base/os/proc_text.h"
#include "base/text/sanitize.h"

namespace dslaunch {
namespace {

constexpr int kMaxLinks = 40;
// User ID of files whose owner the user namespace does not map.
constexpr uid_t kUnmappedUser = 65'534;

Error Refuse(const std::string& path, const std::string& why) {
  return {ExitCode::kIo, Truncate(path) + " " + why};
}

Error Failed(const std::string& path, int error_number) {
  return Refuse(path, std::string("cannot be opened: ") + std::strerror(error_number));
}

std::string NameOf(uid_t user) {
  const std::optional<Account> account = FindAccount(user);
  const std::string uid = "uid " + std::to_string(user);
  return account ? account->name + " (" + uid + ")" : uid;
}

// Returns whether `user` is the only member of the group. Many systems create such a group for
// every account, so folders with umask 002 are still private.
bool IsPrivateGroup(gid_t group, uid_t user) {
  const std::optional<Account> account = FindAccount(user);
  if (!account || account->group != group) return false;
  const std::optional<AccountGroup> found = FindGroup(group);
  return found && found->name == account->name &&
         std::ranges::all_of(found->members,
                             [&](const std::string& member) { return member == account->name; });
}

// Returns whether this process is in a user namespace that does not map root. Root's files then
// appear to belong to an unmapped user.
bool IsRootUnmapped() {
  const std::string map = ReadWhole("/proc/self/uid_map").value_or("");
  for (std::string_view rest = map; !rest.empty();) {
    std::string_view line = TakeLine(rest);
    if (TakeNumber(line) == 0) return false;  // first uid inside the namespace
  }
  return !map.empty();
}

// Returns whether users other than `user` and root have the access `right`, a bit of S_IRWXO.
bool OthersHave(mode_t right, const struct stat& status, uid_t user) {
  if ((status.st_mode & right) != 0) return true;
  if ((status.st_mode & (right << 3)) == 0 || status.st_gid == 0) return false;
  return !IsPrivateGroup(status.st_gid, user);
}

bool OthersWrite(const struct stat& status, uid_t user) {
  return OthersHave(S_IWOTH, status, user);
}

// Opens a path folder by folder and checks each folder.
class Walk {
 public:
  Walk(uid_t user, IfMissing if_missing) : user_(user), if_missing_(if_missing) {}

  // Opens the folders of an absolute path, one after the other. Returns false if a folder is
  // missing.
  Result<bool> Go(const std::string& path) {
    DSL_TRY(ToRoot());
    std::deque<std::string> names = NamesOf(path);
    for (int links = 0; !names.empty();) {
      const std::string name = std::move(names.front());
      names.pop_front();
      const std::string at = at_ + "/" + name;
      struct stat status {};
      DSL_TRY_ASSIGN(const bool is_there, Look(name, at, status));
      if (!is_there) return false;
      if (!S_ISLNK(status.st_mode)) {
        DSL_TRY(Enter(name, at));
        continue;
      }
      if (!IsTrustedOwner(status.st_uid))
        return Refuse(at, "is a link of another user, " + NameOf(status.st_uid));
      if (++links > kMaxLinks) return Failed(at, ELOOP);
      std::array<char, PATH_MAX> target;
      const ssize_t size = ::readlinkat(folder_.get(), name.c_str(), target.data(), target.size());
      if (size <= 0) return Failed(at, size < 0 ? errno : ENOENT);
      const std::string text(target.data(), static_cast<size_t>(size));
      if (text.front() == '/') DSL_TRY(ToRoot());
      std::deque<std::string> more = NamesOf(text);
      names.insert(names.begin(), more.begin(), more.end());
    }
    return true;
  }

  // Opens the folders of the relative path `below`, which must belong to `user` and not be writable
  // by others. Returns false if a folder is missing.
  Result<bool> GoBelow(const std::string& base, const std::string& below) {
    folder_.Reset(::open(base.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!folder_ && errno == ENOENT && if_missing_ == IfMissing::kFail) return false;
    if (!folder_) return Failed(base, errno);
    at_ = base;
    for (const std::string& name : NamesOf(below)) {
      const std::string at = at_ + "/" + name;
      struct stat status {};
      DSL_TRY_ASSIGN(const bool is_there, Look(name, at, status));
      if (!is_there) return false;
      if (S_ISLNK(status.st_mode)) return Refuse(at, "is a link; remove it");
      DSL_TRY(Enter(name, at, /*is_own=*/true));
    }
    return true;
  }

  // Returns the descriptor of the last folder, after checking that `user` owns the folder.
  Result<UniqueFd> TakeOwn() {
    DSL_TRY(CheckOwn(at_, status_));
    return std::move(folder_);
  }

 private:
  static std::deque<std::string> NamesOf(std::string_view path) {
    std::deque<std::string> names;
    while (!path.empty()) {
      const size_t end = std::min(path.find('/'), path.size());
      if (end > 0 && path.substr(0, end) != ".") names.emplace_back(path.substr(0, end));
      path.remove_prefix(std::min(end + 1, path.size()));
    }
    return names;
  }

  // Returns whether an entry with this owner can be trusted. If root is unmapped, unmapped owners
  // count as root, except in a folder that others may write, where any user may have created the
  // entry.
  bool IsTrustedOwner(uid_t owner) const {
    if (owner == 0 || owner == user_) return true;
    return owner == kUnmappedUser && !is_shared_ && IsRootUnmapped();
  }

  Result<void> ToRoot() {
    folder_.Reset(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
    at_.clear();
    is_shared_ = false;
    return Check("/");
  }

  Result<bool> Look(const std::string& name, const std::string& at, struct stat& status) {
    const auto look = [&] {
      return ::fstatat(folder_.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
    };
    if (look()) return true;
    if (errno != ENOENT) return Failed(at, errno);
    if (if_missing_ == IfMissing::kFail) return false;
    if (::mkdirat(folder_.get(), name.c_str(), 0700) != 0 && errno != EEXIST)
      return Refuse(at, std::string("cannot be made: ") + std::strerror(errno));
    if (!look()) return Failed(at, errno);
    return true;
  }

  Result<void> Enter(const std::string& name, const std::string& at, bool is_own = false) {
    folder_.Reset(
        ::openat(folder_.get(), name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!folder_) return Failed(at, errno);
    at_ = name == ".." ? at_.substr(0, at_.rfind('/')) : at;
    DSL_TRY(Check(at));
    if (is_own) DSL_TRY(CheckOwn(at, status_));
    return {};
  }

  // Checks that no other user can replace entries of the folder `at`, which was opened last.
  Result<void> Check(const std::string& at) {
    if (::fstat(folder_.get(), &status_) != 0) return Failed(at, errno);
    if (!IsTrustedOwner(status_.st_uid))
      return Refuse(at, "is another user's, " + NameOf(status_.st_uid));
    is_shared_ = OthersWrite(status_, user_);
    if (is_shared_ && (status_.st_mode & S_ISVTX) == 0)
      return Refuse(at, "may be changed by others; chmod go-w " + Truncate(at));
    return {};
  }

  Result<void> CheckOwn(const std::string& at, const struct stat& status) const {
    if (status.st_uid != user_) return Refuse(at, "is another user's, " + NameOf(status.st_uid));
    if (OthersWrite(status, user_))
      return Refuse(at, "may be changed by others; chmod go-w " + Truncate(at));
    return {};
  }

  const uid_t user_;
  const IfMissing if_missing_;
  UniqueFd folder_;
  struct stat status_ {};  // stat() of the folder that `folder_` refers to
  std::string at_;         // path of `folder_`, without a trailing '/'
  bool is_shared_ = false;
};

// Returns the reason why the file must not be read; empty if it may be read. `roots_too` is whether
// root may own the file.
std::string WhyNotOwn(const struct stat& status, uid_t user, bool roots_too) {
  if (!S_ISREG(status.st_mode)) return "is not a regular file";
  if (status.st_uid != user && !(roots_too && status.st_uid == 0))
    return "belongs to another user, " + NameOf(status.st_uid);
  if (!OthersWrite(status, user)) return "";
  char mode[8];
  std::snprintf(mode, sizeof mode, "%04o", static_cast<unsigned>(status.st_mode & 07777));
  return std::string("may be changed by others (mode ") + mode + ")";
}

}  // namespace

Result<UniqueFd> OpenOwnFolder(const std::string& path, uid_t user, IfMissing if_missing) {
  Walk walk(user, if_missing);
  DSL_TRY_ASSIGN(const bool is_there, walk.Go(path));
  if (!is_there) return UniqueFd();
  return walk.TakeOwn();
}

Result<UniqueFd> OpenOwnFolderIn(const std::string& base, const std::string& below, uid_t user,
                                 IfMissing if_missing) {
  if (if_missing == IfMissing::kMake) {
    for (size_t slash = base.find('/', 1);; slash = base.find('/', slash + 1)) {
      const std::string folder = base.substr(0, slash);
      if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
        return Refuse(folder, std::string("cannot be made: ") + std::strerror(errno));
      if (slash == std::string::npos) break;
    }
  }
  Walk walk(user, if_missing);
  DSL_TRY_ASSIGN(const bool is_there, walk.GoBelow(base, below));
  if (!is_there) return UniqueFd();
  return walk.TakeOwn();
}

Result<UniqueFd> OpenOwnFile(const UniqueFd& folder, const std::string& name,
                             const std::string& path, uid_t user) {
  UniqueFd file(::openat(folder.get(), name.c_str(),
                         O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file && errno == ENOENT) return UniqueFd();
  if (!file) return Failed(path, errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return Failed(path, errno);
  const std::string why = WhyNotOwn(status, user, /*roots_too=*/false);
  if (!why.empty()) return Refuse(path, why);
  return file;
}

Result<UniqueFd> OpenTrustedFile(const std::string& path, uid_t user) {
  const auto bad = [&](const std::string& why) {
    return Error{ExitCode::kBadInput, Truncate(path) + " " + why};
  };
  struct stat link {};
  if (::lstat(path.c_str(), &link) == 0 && S_ISLNK(link.st_mode) && link.st_uid != 0 &&
      link.st_uid != user)
    return bad("is a link of another user, " + NameOf(link.st_uid));
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0)
    return bad(std::string("cannot be read: ") + std::strerror(errno));
  const std::string why = WhyNotOwn(status, user, /*roots_too=*/true);
  if (!why.empty()) return bad(why);
  return file;
}

bool OthersMayRead(const struct stat& status, uid_t user) {
  return OthersHave(S_IROTH, status, user);
}

Result<std::string> ReadAll(const UniqueFd& file, const std::string& path, size_t max_bytes) {
  std::string text;
  std::array<char, 64 << 10> chunk;
  while (text.size() <= max_bytes) {
    const ssize_t size = ::read(file.get(), chunk.data(), chunk.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return Refuse(path, std::string("cannot be read: ") + std::strerror(errno));
    if (size == 0) return text;
    text.append(chunk.data(), static_cast<size_t>(size));
  }
  return Refuse(path, "is larger than " + std::to_string(max_bytes) + " bytes");
}

std::string HomeOf(uid_t user) {
  const std::optional<Account> account = FindAccount(user);
  return account ? account->home : "";
}

}  // namespace dslaunch
