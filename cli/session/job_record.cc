#include "cli/session/job_record.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <tuple>

#include "base/count.h"
#include "base/os/ownership.h"
#include "base/text/sanitize.h"
#include "base/unique_fd.h"
#include "proto/contract/job_paths.h"
#include "proto/contract/old_jobs.h"

namespace dslaunch {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFileName[] = "job.json";
constexpr size_t kMaxRecordBytes = 256 << 20;
constexpr char kChooseStateFolder[] = "; set XDG_STATE_HOME to a folder of your own";

std::string ToText(const JobRecord& record) {
  Json nodes = Json::array();
  for (const NodeTarget& node : record.nodes) {
    Json one = {{"name", node.name}, {"host", node.host}, {"port", node.port}, {"user", node.user}};
    if (node.is_here) one["is_here"] = true;
    if (node.component >= 0) one["component"] = node.component;
    nodes.push_back(std::move(one));
  }
  const Json json = {{"job", record.job_id},
                     {"pid", record.pid},
                     {"start_ticks", record.start_ticks},
                     {"launcher", RowOf(record.launcher).name},
                     {"ssh_command", record.ssh_command},
                     {"agent_dir", record.agent_dir},
                     {"exec_command", record.exec_command},
                     {"nodes", std::move(nodes)},
                     {"argv", record.argv},
                     {"cwd", record.cwd},
                     {"log_dir", record.log_dir},
                     {"started_unix_ms", record.started_unix_ms},
                     {"ended_unix_ms", record.ended_unix_ms},
                     {"exit_code", record.exit_code}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

template <class T>
void ReadWhole(const Json& json, const char* key, T& value) {
  if (!json.at(key).is_number_integer())
    throw std::invalid_argument(std::string(key) + " is not a whole number");
  json.at(key).get_to(value);
}

// Parses a record. Throws nlohmann's exceptions and std::invalid_argument if the text is not valid.
JobRecord FromText(const std::string& text, const std::string& job_id) {
  const Json json = Json::parse(text);
  JobRecord record;
  json.at("job").get_to(record.job_id);
  if (record.job_id != job_id) throw std::invalid_argument("it is of another job");
  ReadWhole(json, "pid", record.pid);
  ReadWhole(json, "start_ticks", record.start_ticks);
  const LauncherRow* const launcher = FindLauncher(json.at("launcher").get<std::string>());
  if (launcher == nullptr) throw std::invalid_argument("its launcher is not known");
  record.launcher = launcher->launcher;
  record.ssh_command = json.value("ssh_command", std::vector<std::string>());
  record.agent_dir = json.value("agent_dir", std::string());
  record.exec_command = json.value("exec_command", std::vector<std::string>());
  for (const Json& node : json.at("nodes")) {
    NodeTarget& one = record.nodes.emplace_back();
    one.index = record.nodes.size() - 1;
    node.at("name").get_to(one.name);
    node.at("host").get_to(one.host);
    ReadWhole(node, "port", one.port);
    node.at("user").get_to(one.user);
    one.is_here = node.value("is_here", false);
    if (node.contains("component")) ReadWhole(node, "component", one.component);
  }
  json.at("argv").get_to(record.argv);
  json.at("cwd").get_to(record.cwd);
  json.at("log_dir").get_to(record.log_dir);
  ReadWhole(json, "started_unix_ms", record.started_unix_ms);
  ReadWhole(json, "ended_unix_ms", record.ended_unix_ms);
  ReadWhole(json, "exit_code", record.exit_code);
  return record;
}

Error CannotWrite(const std::string& path, int error_number) {
  return {ExitCode::kIo,
          "cannot write " + path + ": " + std::strerror(error_number) + kChooseStateFolder};
}

}  // namespace

std::string OwnJobsFolder() {
  return JobsFolder(std::getenv("XDG_STATE_HOME"), std::getenv("HOME"), ::geteuid());
}

Result<UniqueFd> OpenFrontEndFolder(const std::string& path, bool in_log_dir,
                                    IfMissing if_missing) {
  if (!in_log_dir) return OpenOwnFolder(path, ::geteuid(), if_missing);
  const size_t slash = path.rfind('/');
  return OpenOwnFolderIn(path.substr(0, slash), path.substr(slash + 1), ::geteuid(), if_missing);
}

Result<void> WriteJobRecord(const std::string& jobs_folder, const JobRecord& record) {
  const std::string path = jobs_folder + "/" + record.job_id + "/" + kFileName;
  const Result<UniqueFd> folder =
      OpenOwnFolder(jobs_folder + "/" + record.job_id, ::geteuid(), IfMissing::kMake);
  if (!folder.ok()) return Error{folder.error().code, folder.error().message + kChooseStateFolder};
  const std::string temporary = std::string(kFileName) + "." + std::to_string(::getpid());
  const std::string text = ToText(record);
  const UniqueFd file(::openat(folder->get(), temporary.c_str(),
                               O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return CannotWrite(path, errno);
  const ssize_t written = ::write(file.get(), text.data(), text.size());
  if (written != static_cast<ssize_t>(text.size()) ||
      ::renameat(folder->get(), temporary.c_str(), folder->get(), kFileName) != 0) {
    const int error_number = written < 0 ? errno : written < ssize_t(text.size()) ? ENOSPC : errno;
    ::unlinkat(folder->get(), temporary.c_str(), 0);
    return CannotWrite(path, error_number);
  }
  return {};
}

Result<JobRecord> ReadJobRecord(const std::string& jobs_folder, const std::string& job_id) {
  const std::string folder_path = jobs_folder + "/" + job_id;
  const std::string path = folder_path + "/" + kFileName;
  UniqueFd file;
  if (job_id.find('/') == std::string::npos) {
    DSL_TRY_ASSIGN(const UniqueFd folder,
                   OpenOwnFolder(folder_path, ::geteuid(), IfMissing::kFail));
    if (folder) {
      DSL_TRY_ASSIGN(file, OpenOwnFile(folder, kFileName, path, ::geteuid()));
    }
  }
  if (!file) {
    return Error{ExitCode::kBadInput, "no job " + job_id + " was started from this machine (" +
                                          path +
                                          " cannot be read); dslaunch ps lists those that were"};
  }
  DSL_TRY_ASSIGN(const std::string text, ReadAll(file, path, kMaxRecordBytes));
  try {
    return FromText(text, job_id);
  } catch (const std::exception& error) {
    return Error{ExitCode::kBadInput, path + ": not the record of a job (" +
                                          Truncate(error.what()) + "); remove its folder"};
  }
}

Result<std::vector<JobRecord>> ListJobRecords(const std::string& jobs_folder) {
  std::vector<JobRecord> records;
  const Result<UniqueFd> folder = OpenOwnFolder(jobs_folder, ::geteuid(), IfMissing::kFail);
  if (!folder.ok()) return Error{folder.error().code, folder.error().message + kChooseStateFolder};
  std::error_code error;
  for (std::filesystem::directory_iterator entry(jobs_folder, error), end; !error && entry != end;
       entry.increment(error)) {
    Result<JobRecord> record = ReadJobRecord(jobs_folder, entry->path().filename());
    if (record.ok()) records.push_back(*std::move(record));
  }
  std::ranges::sort(records, {}, [](const JobRecord& record) {
    return std::tie(record.started_unix_ms, record.job_id);
  });
  return records;
}

std::string RemoveOldRecords(const std::string& jobs_folder) {
  constexpr size_t kAtOnce = 20;
  const Result<UniqueFd> folder = OpenOwnFolder(jobs_folder, ::geteuid(), IfMissing::kFail);
  if (!folder.ok() || !folder->valid()) return "";
  const size_t removed =
      RemoveOldJobs(jobs_folder, std::time(nullptr), kAtOnce, [&](const std::string& job_id) {
        const Result<JobRecord> record = ReadJobRecord(jobs_folder, job_id);
        return record.ok() && record->ended_unix_ms != 0;
      });
  if (removed == 0) return "";
  return "removed the folders of " + Count(removed, "job") + " in which nothing has changed for " +
         Count(kJobsKeptDays, "day");
}

}  // namespace dslaunch
