#include "agent/probe/folder_speed.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "agent/probe/starvation.h"
#include "base/count.h"
#include "base/errno_text.h"
#include "base/unique_fd.h"

namespace dslaunch {
namespace {

constexpr size_t kBlockBytes = 1 << 20;
constexpr size_t kMostBlocks = 8;
constexpr size_t kLeastBlocks = 2;

// Opens a file that is removed when its descriptor is closed, also if this process is killed.
UniqueFd OpenNameless(const std::string& folder) {
  std::string name = folder + "/.dslaunch-bench-XXXXXX";
  UniqueFd file(::mkostemp(name.data(), O_CLOEXEC));
  if (file) ::unlink(name.c_str());
  return file;
}

bool WriteBlock(int fd, const std::vector<char>& block) {
  size_t written = 0;
  while (written < block.size()) {
    const ssize_t n = ::write(fd, block.data() + written, block.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    written += static_cast<size_t>(n);
  }
  return ::fdatasync(fd) == 0;
}

pb::FolderSpeed Write(pb::FolderSpeed speed, milliseconds duration) {
  const UniqueFd file = OpenNameless(speed.path());
  if (!file) {
    speed.set_trouble(ErrnoText(errno));
    return speed;
  }
  const std::vector<char> block(kBlockBytes, 'd');
  std::vector<double> seconds;
  const StarvationMeter starvation;
  const Deadline over = Deadline::After(duration);
  while (seconds.size() < kMostBlocks && (seconds.size() < kLeastBlocks || !over.Expired())) {
    const Clock::time_point begin = Clock::now();
    if (!WriteBlock(file.get(), block)) {
      speed.set_trouble(ErrnoText(errno));
      return speed;
    }
    seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  speed.set_starved_permille(starvation.Permille());
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::ranges::nth_element(seconds, middle);
  speed.set_bytes_per_s(static_cast<uint64_t>(kBlockBytes / std::max(*middle, 1e-9)));
  return speed;
}

}  // namespace

std::string NearestFolder(const std::string& path) {
  std::filesystem::path folder = path;
  while (folder.has_relative_path() && ::access(folder.c_str(), F_OK) != 0)
    folder = folder.parent_path();
  return folder.string();
}

pb::FolderSpeed MeasureFolder(const pb::MeasuredFolder& folder, milliseconds duration,
                              milliseconds patience) {
  pb::FolderSpeed speed;
  speed.set_use(folder.use());
  speed.set_path(folder.path());
  if (!folder.path().starts_with('/')) {
    speed.set_trouble("it is not an absolute path");
    return speed;
  }
  auto promise = std::make_shared<std::promise<pb::FolderSpeed>>();
  std::future<pb::FolderSpeed> answer = promise->get_future();
  std::thread([promise, speed, duration]() mutable {
    speed.set_path(NearestFolder(speed.path()));
    promise->set_value(Write(std::move(speed), duration));
  }).detach();
  if (answer.wait_for(patience) == std::future_status::ready) return answer.get();
  speed.set_trouble("it did not store " + std::to_string(kLeastBlocks) + " MiB within " +
                    Seconds(patience.count()));
  return speed;
}

}  // namespace dslaunch
