#include "agent/flight/flight_requests.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <cerrno>
#include <optional>
#include <utility>

#include "agent/flight/flight_record.h"
#include "base/errno_text.h"
#include "base/unique_fd.h"
#include "proto/contract/rank_files.h"

namespace dslaunch {
namespace {

constexpr milliseconds kPollInterval(50);

// Identifies a version of a file. A dump that existed before the request does not answer it, so the
// dump must have another version.
struct FileVersion {
  ino_t inode = 0;
  off_t size = 0;
  timespec modified = {};

  bool operator==(const FileVersion& other) const {
    return inode == other.inode && size == other.size && modified.tv_sec == other.modified.tv_sec &&
           modified.tv_nsec == other.modified.tv_nsec;
  }
};

FileVersion VersionOf(const struct stat& status) {
  return {status.st_ino, status.st_size, status.st_mtim};
}

std::optional<FileVersion> VersionAt(const std::string& path) {
  struct stat status = {};
  if (lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  return VersionOf(status);
}

// Requests a dump by writing to the named pipe. Returns the reason if that is not possible; empty
// on success.
std::string Ring(const std::string& pipe) {
  const UniqueFd fd(open(pipe.c_str(), O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid()) {
    if (errno == ENOENT || errno == ENXIO) return "its process has no Flight Recorder of NCCL";
    return "cannot open " + pipe + ": " + ErrnoText(errno);
  }
  struct stat status = {};
  if (fstat(fd.get(), &status) != 0 || !S_ISFIFO(status.st_mode)) return pipe + " is not a pipe";
  if (write(fd.get(), "1", 1) != 1) return "cannot write to " + pipe + ": " + ErrnoText(errno);
  return "";
}

// Returns the content of a regular file of at most kMaxFlightDumpBytes; nullopt for any other file.
std::optional<std::string> ReadDump(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  struct stat status = {};
  if (!fd.valid() || fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      static_cast<uint64_t>(status.st_size) > kMaxFlightDumpBytes)
    return std::nullopt;
  std::string bytes(static_cast<size_t>(status.st_size), '\0');
  size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t got = read(fd.get(), bytes.data() + have, bytes.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    have += static_cast<size_t>(got);
  }
  bytes.resize(have);
  return bytes;
}

}  // namespace

struct FlightRequests::Request {
  Request(asio::io_context& loop, Done call) : timer(loop), done(std::move(call)) {}

  asio::steady_timer timer;
  Done done;
  uint32_t rank = 0;
  FlightFiles files;
  std::optional<FileVersion> before;  // version of the dump file before the request
  std::optional<FileVersion> last;    // version of the dump file at the last poll
  Deadline deadline = Deadline::After(kLimit);
  std::string trouble = "its process wrote no dump of Flight Recorder within 4 s";
};

FlightFiles FlightFilesIn(const std::string& rank_folder, uint32_t rank) {
  const std::string prefix = rank_folder + "/" + kFlightPrefix + std::to_string(rank);
  return {prefix + ".pipe", prefix};
}

bool TakesPipes(const std::string& folder) {
  const std::string path = folder + "/pipe.try";
  unlink(path.c_str());
  constexpr mode_t kOwner = 0600;
  const bool made = mkfifo(path.c_str(), kOwner) == 0;
  unlink(path.c_str());
  return made;
}

void FlightRequests::Begin(uint32_t rank, const std::string& rank_folder, Done done) {
  auto request = std::make_shared<Request>(loop_, std::move(done));
  request->rank = rank;
  request->files = FlightFilesIn(rank_folder, rank);
  request->before = VersionAt(request->files.dump);
  std::string trouble = Ring(request->files.pipe);
  if (trouble.empty()) {
    ends_[rank] = std::nullopt;
    return Poll(std::move(request));
  }
  asio::post(loop_, [request, trouble = std::move(trouble)] {
    pb::FlightRecord record;
    record.set_rank(request->rank);
    record.set_trouble(trouble);
    request->done(std::move(record));
  });
}

void FlightRequests::Poll(std::shared_ptr<Request> request) {
  request->timer.expires_after(kPollInterval);
  request->timer.async_wait([this, request](const asio::error_code& error) {
    if (error) return;
    const std::optional<FileVersion> version = VersionAt(request->files.dump);
    pb::FlightRecord record;
    // The process may still be writing the dump if its version has changed since the last poll, or
    // if the pickle is incomplete, so the dump is then polled again.
    const bool is_new = version && version->size > 0 && version != request->before;
    if (is_new && version == std::exchange(request->last, version)) {
      Result<pb::FlightRecord> read = ReadFlightRecord(ReadDump(request->files.dump).value_or(""));
      if (read.ok()) {
        record = *std::move(read);
        return End(*request, std::move(record));
      }
      request->trouble = read.error().message;
    }
    if (!request->deadline.Expired()) return Poll(request);
    record.set_trouble(request->trouble);
    End(*request, std::move(record));
  });
}

void FlightRequests::End(Request& request, pb::FlightRecord record) {
  ends_[request.rank] = Clock::now();
  record.set_rank(request.rank);
  request.done(std::move(record));
}

bool FlightRequests::WroteSince(uint32_t rank, Clock::time_point since) const {
  const auto found = ends_.find(rank);
  return found != ends_.end() && found->second.value_or(Clock::time_point::max()) > since;
}

}  // namespace dslaunch
