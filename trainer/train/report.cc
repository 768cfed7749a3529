#include "trainer/train/report.h"

#include <fcntl.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "trainer/base/train_error.h"

namespace dslaunch {
namespace {

constexpr milliseconds kStatusInterval{100};
// Minimum share of the training time that is reported as waiting for data.
constexpr double kNotableWait = 0.05;
constexpr double kNotableWaitS = 1;

}  // namespace

StatusPipe::StatusPipe(int fd) : fd_(fd), next_(Clock::now()) {
  if (!fd_) return;
  const int flags = fcntl(fd_.get(), F_GETFL);
  if (flags < 0 || fcntl(fd_.get(), F_SETFL, flags | O_NONBLOCK) < 0)
    fd_.Release();  // descriptor is not open, so the destructor must not close it
}

void StatusPipe::Ready(bool loss_tolerated) {
  StatusLine line;
  line.loss_tolerated = loss_tolerated;
  Write(line.Format());
}

void StatusPipe::Lost(int rank) {
  StatusLine line;
  line.event = StatusLine::Event::kLost;
  line.lost_rank = static_cast<uint32_t>(rank);
  Write(line.Format());
}

void StatusPipe::Step(const StatusLine& line) {
  const Clock::time_point now = Clock::now();
  if (now < next_ && line.step != line.total_steps) return;
  next_ = now + kStatusInterval;
  Write(line.Format());
}

void StatusPipe::RestoredFromDisk(int64_t step, std::optional<int64_t> reached_step) {
  StatusLine line;
  line.event = StatusLine::Event::kRestored;
  line.step = step;
  line.reached_step = reached_step;
  Write(line.Format());
}

void StatusPipe::Evaluated(int64_t step, const EvaluationResults& results) {
  StatusLine line;
  line.event = StatusLine::Event::kEval;
  line.step = step;
  line.results = results;
  Write(line.Format());
}

void StatusPipe::Saving(int64_t step) {
  Write(StatusLine{.event = StatusLine::Event::kSave, .step = step}.Format());
}

void StatusPipe::Saved(int64_t step) {
  Write(StatusLine{.event = StatusLine::Event::kSaved, .step = step}.Format());
}

// Writes a line. The line is much shorter than PIPE_BUF, so it is written as a whole or not at all.
void StatusPipe::Write(const std::string& line) {
  if (!fd_) return;
  if (write(fd_.get(), line.data(), line.size()) < 0 && errno == EPIPE) fd_.Reset();
}

std::string MetricsJson(const StepMetrics& m) {
  nlohmann::ordered_json json = {{"step", m.step},
                                 {"attempt", m.attempt},
                                 {"epoch", m.epoch},
                                 {"loss", m.loss},
                                 {"lr", m.lr},
                                 {"grad_norm", m.grad_norm},
                                 {"loss_scale", m.loss_scale},
                                 {"skipped", m.skipped},
                                 {"samples", m.samples},
                                 {"tokens", m.tokens},
                                 {"steps", m.steps},
                                 {"step_s", m.step_s}};
  if (m.compute_s > 0) json["compute_s"] = m.compute_s;
  json["samples_per_s"] = m.samples_per_s;
  json["tokens_per_s"] = m.tokens_per_s;
  if (m.mfu) json["mfu"] = *m.mfu;
  json["memory"] = {{"parameters", m.memory.parameters}, {"gradients", m.memory.gradients},
                    {"buckets", m.memory.buckets},       {"optimizer", m.memory.optimizer},
                    {"buffers", m.memory.buffers},       {"activations", m.memory.activations},
                    {"peak_rss", m.memory.peak_rss}};
  if (m.memory.tensors > 0) json["memory"]["tensors"] = m.memory.tensors;
  return json.dump();
}

std::string OwnMetricsJson(const StepMetrics& m) {
  nlohmann::ordered_json json = {
      {"step", m.step}, {"steps", m.steps}, {"attempt", m.attempt}, {"step_s", m.step_s}};
  if (m.compute_s > 0) json["compute_s"] = m.compute_s;
  return json.dump();
}

namespace {

EvaluationResults OwnResultsOf(const EvaluationSums& sums) {
  const auto targets = static_cast<double>(sums.targets);
  const double loss = sums.loss / targets;
  switch (sums.kind) {
    case EvaluationSums::Kind::kClasses: {
      const auto correct = static_cast<double>(sums.correct);
      return {{"loss", loss},
              {"accuracy", correct / targets},
              {"correct", correct},
              {"samples", targets}};
    }
    case EvaluationSums::Kind::kTokens:
    case EvaluationSums::Kind::kAnswers:
      return {{"loss", loss}, {"perplexity", std::exp(loss)}, {"tokens", targets}};
    case EvaluationSums::Kind::kOther:
      return {{"loss", loss}, {"samples", targets}};
  }
  std::abort();
}

}  // namespace

EvaluationResults ResultsOf(const EvaluationSums& sums) {
  EvaluationResults results = OwnResultsOf(sums);
  results.insert(results.end(), sums.metrics.begin(), sums.metrics.end());
  return results;
}

std::string EvaluationJson(int64_t step, int64_t epoch, int64_t attempt,
                           const EvaluationResults& results) {
  constexpr double kMaxWhole = 9e15;
  nlohmann::ordered_json json = {{"step", step}, {"attempt", attempt}};
  if (epoch > 0) json["epoch"] = epoch;
  nlohmann::ordered_json& eval = json["eval"];
  for (const auto& [name, value] : results) {
    if (value == std::floor(value) && std::abs(value) < kMaxWhole) {
      // Counts and other whole numbers are written without a decimal point.
      eval[name] = static_cast<int64_t>(value);
    } else {
      eval[name] = value;
    }
  }
  return json.dump();
}

MetricsFile::MetricsFile(const std::string& file, const std::string& option)
    : file_(file), fd_(open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
  if (!fd_) {
    throw TrainError(ExitCode::kIo,
                     option + ": cannot open " + file + " for writing: " + std::strerror(errno));
  }
}

void MetricsFile::Append(const std::string& json) {
  const std::string line = json + "\n";
  size_t written = 0;
  while (written < line.size()) {
    const ssize_t n = write(fd_.get(), line.data() + written, line.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      throw TrainError(ExitCode::kIo, file_ + ": cannot be written: " + std::strerror(errno));
    written += static_cast<size_t>(n);
  }
}

namespace {

std::string OwnEvaluationLine(const std::string& prefix, const EvaluationSums& sums) {
  const auto count = static_cast<long long>(sums.targets);
  const double loss = sums.loss / static_cast<double>(sums.targets);
  switch (sums.kind) {
    case EvaluationSums::Kind::kClasses:
      return prefix + Format(" accuracy %.2f%% (%lld of %lld), loss %.4f",
                             100.0 * static_cast<double>(sums.correct) / static_cast<double>(count),
                             static_cast<long long>(sums.correct), count, loss);
    case EvaluationSums::Kind::kTokens:
    case EvaluationSums::Kind::kAnswers:
      return prefix + Format(" perplexity %.4g, loss %.4f (%lld tokens%s)", std::exp(loss), loss,
                             count,
                             sums.kind == EvaluationSums::Kind::kAnswers ? " of answers" : "");
    case EvaluationSums::Kind::kOther:
      return prefix + Format(" loss %.4f (%lld samples)", loss, count);
  }
  std::abort();
}

}  // namespace

std::string EvaluationLine(const std::string& prefix, const EvaluationSums& sums) {
  std::string line = OwnEvaluationLine(prefix, sums);
  for (const auto& [name, value] : sums.metrics)
    line += ", " + name + Format(" %.4g", WithoutSignOfNan(value));
  return line;
}

std::string SkippedLine(int64_t step, const std::string& reason) {
  return "step " + std::to_string(step) + " was skipped: " + reason;
}

std::string DataWaitLine(double waited_s, double training_s) {
  if (waited_s < kNotableWait * training_s || waited_s < kNotableWaitS) return "";
  return Format(
      "waited %.1f s of %.1f s for data; a higher data.prefetch or a faster disk may help",
      waited_s, training_s);
}

int64_t PeakRssBytes() {
  // The maximum of getrusage survives exec and may belong to an earlier program, so /proc is read.
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (int64_t kilobytes = 0; word == "VmHWM:" && status >> kilobytes) return kilobytes * 1024;
  }
  return 0;
}

}  // namespace dslaunch
