#include "trainer/program/report.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "trainer/train_error.h"

namespace dslaunch {
namespace {

constexpr milliseconds kStatusInterval{100};

}  // namespace

StatusPipe::StatusPipe(int fd) : fd_(fd), next_(Clock::now()) {
  if (!fd_) return;
  const int flags = fcntl(fd_.get(), F_GETFL);
  if (flags < 0 || fcntl(fd_.get(), F_SETFL, flags | O_NONBLOCK) < 0)
    fd_.Release();  // not open: not ours
}

void StatusPipe::Ready() { Write(StatusLine{}.Format()); }

void StatusPipe::Step(const StatusLine& line) {
  const Clock::time_point now = Clock::now();
  if (now < next_ && line.step != line.total_steps) return;
  next_ = now + kStatusInterval;
  Write(line.Format());
}

// A line is far below PIPE_BUF, so it is written whole or not at all.
void StatusPipe::Write(const std::string& line) {
  if (!fd_) return;
  if (write(fd_.get(), line.data(), line.size()) < 0 && errno == EPIPE) fd_.Reset();
}

MetricsFile::MetricsFile(const std::string& file)
    : file_(file), fd_(open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
  if (!fd_) {
    throw TrainError(ExitCode::kIo, "run.metrics_jsonl: cannot open " + file +
                                        " for writing: " + std::strerror(errno));
  }
}

void MetricsFile::Append(const StepMetrics& m) {
  const nlohmann::ordered_json json = {
      {"step", m.step},       {"attempt", m.attempt}, {"epoch", m.epoch},
      {"loss", m.loss},       {"lr", m.lr},           {"grad_norm", m.grad_norm},
      {"samples", m.samples}, {"step_s", m.step_s},   {"samples_per_s", m.samples_per_s}};
  const std::string line = json.dump() + "\n";
  size_t written = 0;
  while (written < line.size()) {
    const ssize_t n = write(fd_.get(), line.data() + written, line.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      throw TrainError(ExitCode::kIo, file_ + ": cannot be written: " + std::strerror(errno));
    written += static_cast<size_t>(n);
  }
}

std::string AccuracyLine(const std::string& prefix, int64_t correct, int64_t count,
                         double mean_loss) {
  return prefix + Format(" accuracy %.2f%% (%lld of %lld), loss %.4f",
                         100.0 * static_cast<double>(correct) / static_cast<double>(count),
                         static_cast<long long>(correct), static_cast<long long>(count), mean_loss);
}

std::string Format(const char* format, ...) {
  char text[1024];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return text;
}

void PrintLine(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

}  // namespace dslaunch
