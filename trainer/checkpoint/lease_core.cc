#include "trainer/checkpoint/lease_core.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "base/text/sanitize.h"

namespace dslaunch {
namespace {

constexpr char kLeaseFormat[] = "dslaunch lease 1";
// Maximum length of a name; five escaped names fit into kLeaseBytes.
constexpr size_t kMaxNameBytes = 128;

std::string LeaseName(const std::string& text) { return Truncate(text, kMaxNameBytes); }

std::string SecondsText(Clock::duration time) {
  return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(time).count()) + " s";
}

// Returns whether both owners are processes of the same job. The launcher or the batch system ends
// one process before it starts the next, so the later process may take the lease.
bool IsSameJob(const LeaseOwner& a, const LeaseOwner& b) {
  return !a.job_id.empty() && a.job_id == b.job_id;
}
bool IsSameBatchJob(const LeaseOwner& a, const LeaseOwner& b) {
  return !a.batch_job.empty() && a.batch_job == b.batch_job;
}

LeaseDecision Take(const std::string& reason) { return {LeaseDecision::Kind::kTake, reason}; }
LeaseDecision Refuse(const std::string& reason) { return {LeaseDecision::Kind::kRefuse, reason}; }

}  // namespace

std::string FormatLease(const HeldLease& lease) {
  const LeaseOwner& owner = lease.owner;
  const nlohmann::ordered_json json = {{"format", kLeaseFormat},
                                       {"token", LeaseName(owner.token)},
                                       {"job_id", LeaseName(owner.job_id)},
                                       {"attempt", owner.attempt},
                                       {"batch_job", LeaseName(owner.batch_job)},
                                       {"requeues", owner.requeues},
                                       {"host", LeaseName(owner.host)},
                                       {"machine", LeaseName(owner.machine)},
                                       {"pid", owner.process.pid},
                                       {"start_ticks", owner.process.start_ticks},
                                       {"renewals", lease.renewals},
                                       {"renewed_ms", lease.renewed_ms},
                                       {"released", lease.released}};
  std::string text = json.dump(1);
  text.resize(kLeaseBytes - 1, ' ');
  return text + "\n";
}

std::optional<HeldLease> ParseLease(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.value("format", nlohmann::json()) != kLeaseFormat) {
    return std::nullopt;
  }
  bool good = true;
  const auto name = [&](const char* key) {
    const auto found = json.find(key);
    if (found != json.end() && found->is_string()) return LeaseName(found->get<std::string>());
    good = false;
    return std::string();
  };
  const auto number = [&](const char* key, int64_t max = std::numeric_limits<int64_t>::max()) {
    const auto found = json.find(key);
    if (found != json.end() && found->is_number_unsigned() &&
        found->get<uint64_t>() <= static_cast<uint64_t>(max)) {
      return found->get<int64_t>();
    }
    good = false;
    return int64_t{0};
  };
  HeldLease lease;
  lease.owner = {.token = name("token"),
                 .job_id = name("job_id"),
                 .attempt = number("attempt"),
                 .batch_job = name("batch_job"),
                 .requeues = number("requeues"),
                 .host = name("host"),
                 .machine = name("machine"),
                 .process = {static_cast<pid_t>(number("pid", std::numeric_limits<pid_t>::max())),
                             static_cast<uint64_t>(number("start_ticks"))}};
  lease.renewals = number("renewals");
  lease.renewed_ms = number("renewed_ms");
  lease.released = json.value("released", nlohmann::json()) == true;
  return good ? std::optional(lease) : std::nullopt;
}

std::string Describe(const LeaseOwner& owner) {
  const std::string what = !owner.job_id.empty()      ? "job " + owner.job_id
                           : !owner.batch_job.empty() ? "job " + owner.batch_job
                                                      : "a program";
  return what + " on " + (owner.host.empty() ? "an unknown host" : owner.host) + " (pid " +
         std::to_string(owner.process.pid) + ")";
}

LeaseDecision LeaseWatch::OnLook(const std::optional<std::string>& text, OwnerProcess process,
                                 Clock::time_point now) {
  const bool changed = seen_.has_value() && text != seen_;
  if (!seen_.has_value() || changed) unchanged_since_ = now;
  seen_ = text;
  if (!text) {
    seen_.reset();
    return Take("");
  }
  const std::optional<HeldLease> lease = ParseLease(*text);
  if (lease && (lease->released || lease->owner.token == self_.token)) return Take("");
  if (lease && IsSameJob(lease->owner, self_)) {
    const std::string attempt = "attempt " + std::to_string(lease->owner.attempt) + " of this job";
    if (lease->owner.attempt < self_.attempt) return Take(attempt + " had it");
    if (lease->owner.attempt > self_.attempt) return Refuse(attempt + " saves there");
  }
  if (lease && IsSameBatchJob(lease->owner, self_)) {
    if (lease->owner.requeues < self_.requeues) {
      return Take(Describe(lease->owner) + " had it before " + self_.batch_job + " was requeued");
    }
    if (lease->owner.requeues > self_.requeues) {
      return Refuse(self_.batch_job + " was requeued, and saves there again");
    }
  }
  const std::string who = lease ? Describe(lease->owner) : "another job";
  if (lease && process == OwnerProcess::kGone) {
    return Take(who + " has ended without giving it back");
  }
  if (changed || process == OwnerProcess::kAlive) return Refuse(who + " saves there");
  const Clock::duration unchanged = now - unchanged_since_;
  if (unchanged < dead_after_) return {LeaseDecision::Kind::kWait, who};
  return Take(who + " has not renewed it for " + SecondsText(unchanged));
}

}  // namespace dslaunch
