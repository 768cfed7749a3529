#include "cli/session/job_record.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>
#include <tuple>

#include "base/sanitize.h"
#include "base/unique_fd.h"
#include "proto/contract/job_paths.h"

namespace dslaunch {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFileName[] = "/job.json";
constexpr std::array<std::string_view, 3> kLauncherNames = {"local", "ssh", "per_node"};

std::string ToText(const JobRecord& record) {
  Json nodes = Json::array();
  for (const JobRecord::Node& node : record.nodes) {
    nodes.push_back(
        {{"name", node.name}, {"host", node.host}, {"port", node.port}, {"user", node.user}});
  }
  const Json json = {{"job", record.job_id},
                     {"pid", record.pid},
                     {"start_ticks", record.start_ticks},
                     {"launcher", kLauncherNames[static_cast<size_t>(record.launcher)]},
                     {"ssh_command", record.ssh_command},
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

// Throws nlohmann's exceptions and std::invalid_argument.
JobRecord FromText(const std::string& text, const std::string& job_id) {
  const Json json = Json::parse(text);
  JobRecord record;
  json.at("job").get_to(record.job_id);
  if (record.job_id != job_id) throw std::invalid_argument("it is of another job");
  ReadWhole(json, "pid", record.pid);
  ReadWhole(json, "start_ticks", record.start_ticks);
  const auto launcher = std::ranges::find(kLauncherNames, json.at("launcher").get<std::string>());
  if (launcher == kLauncherNames.end()) throw std::invalid_argument("its launcher is not known");
  record.launcher = static_cast<Launcher>(launcher - kLauncherNames.begin());
  record.ssh_command = json.value("ssh_command", std::vector<std::string>());
  for (const Json& node : json.at("nodes")) {
    JobRecord::Node& one = record.nodes.emplace_back();
    node.at("name").get_to(one.name);
    node.at("host").get_to(one.host);
    ReadWhole(node, "port", one.port);
    node.at("user").get_to(one.user);
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
  return {ExitCode::kIo, "cannot write " + path + ": " + std::strerror(error_number) +
                             "; set XDG_STATE_HOME to a folder that can be written"};
}

}  // namespace

std::string OwnJobsFolder() {
  return JobsFolder(std::getenv("XDG_STATE_HOME"), std::getenv("HOME"), ::geteuid());
}

Result<void> WriteJobRecord(const std::string& jobs_folder, const JobRecord& record) {
  const std::string folder = jobs_folder + "/" + record.job_id;
  std::string failed;
  if (const int error_number = MakePrivateFolders(folder, failed); error_number != 0)
    return CannotWrite(failed, error_number);
  const std::string path = folder + kFileName;
  const std::string temporary = path + "." + std::to_string(::getpid());
  const std::string text = ToText(record);
  const UniqueFd file(
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return CannotWrite(temporary, errno);
  const ssize_t written = ::write(file.get(), text.data(), text.size());
  if (written != static_cast<ssize_t>(text.size()) ||
      ::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error_number = written < 0 ? errno : written < ssize_t(text.size()) ? ENOSPC : errno;
    ::unlink(temporary.c_str());
    return CannotWrite(path, error_number);
  }
  return {};
}

Result<JobRecord> ReadJobRecord(const std::string& jobs_folder, const std::string& job_id) {
  const std::string path = jobs_folder + "/" + job_id + kFileName;
  std::ifstream file(path, std::ios::binary);
  if (!file || job_id.find('/') != std::string::npos) {
    return Error{ExitCode::kBadInput, "no job " + job_id + " was started from this machine (" +
                                          path +
                                          " cannot be read); dslaunch ps lists those that were"};
  }
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  try {
    return FromText(text, job_id);
  } catch (const std::exception& error) {
    return Error{ExitCode::kBadInput, path + ": not the record of a job (" +
                                          Truncate(error.what()) + "); remove its folder"};
  }
}

std::vector<JobRecord> ListJobRecords(const std::string& jobs_folder) {
  std::vector<JobRecord> records;
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

}  // namespace dslaunch
