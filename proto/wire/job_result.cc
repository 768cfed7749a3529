#include "proto/wire/job_result.h"

#include <fcntl.h>
#include <google/protobuf/util/json_util.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/os/ownership.h"
#include "base/unique_fd.h"
#include "proto/wire/cause.h"

namespace dslaunch {
namespace {

constexpr char kFileName[] = "/result.json";
constexpr size_t kMaxResultBytes = 64 << 20;

bool WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) return false;
    if (written > 0) bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace

bool SavedOnRequest(const pb::JobResult& result) {
  return result.done().completed() && result.done().saved() && IsStopRequest(result.cause());
}

pb::JobResult MakeJobResult(const std::string& job_id, const pb::Cause& outcome,
                            const pb::NodeDone& done) {
  pb::JobResult result;
  result.set_job_id(job_id);
  *result.mutable_cause() = done.completed() ? done.cause() : outcome;
  *result.mutable_done() = done;
  if (result.cause().kind() != pb::Cause::NONE)
    result.set_exit_code(result.cause().exit_code());
  else if (!done.teardown_complete() || done.left_size() > 0)
    result.set_exit_code(ToInt(ExitCode::kTimedOut));
  if (SavedOnRequest(result)) result.set_exit_code(ToInt(ExitCode::kPreempted));
  return result;
}

Result<void> WriteJobResult(const std::string& folder, const pb::JobResult& result) {
  const std::string path = folder + kFileName;
  const std::string temporary = path + ".new";
  std::string text;
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  if (!google::protobuf::util::MessageToJsonString(result, &text, options).ok())
    return Error{ExitCode::kInternal, "the job's result cannot be written as JSON"};
  const UniqueFd file(
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file || !WriteAll(file.get(), text) || ::fsync(file.get()) != 0 ||
      ::rename(temporary.c_str(), path.c_str()) != 0) {
    return Error{ExitCode::kIo, "cannot write " + path + ": " + std::strerror(errno)};
  }
  const UniqueFd directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ::fsync(directory.get());
  return {};
}

std::optional<pb::JobResult> ReadJobResult(const std::string& folder) {
  const UniqueFd opened(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!opened) return std::nullopt;
  const std::string path = folder + kFileName;
  const Result<UniqueFd> file = OpenOwnFile(opened, kFileName + 1, path, ::geteuid());
  if (!file.ok() || !file->valid()) return std::nullopt;
  const Result<std::string> text = ReadAll(*file, path, kMaxResultBytes);
  if (!text.ok()) return std::nullopt;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;  // a newer version may add fields
  pb::JobResult result;
  if (!google::protobuf::util::JsonStringToMessage(*text, &result, options).ok())
    return std::nullopt;
  return result;
}

}  // namespace dslaunch
