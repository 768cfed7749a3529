#include "trainer/train/progress.h"

#include <algorithm>
#include <cmath>

#include "proto/contract/rank_files.h"
#include "trainer/base/log.h"
#include "trainer/base/train_error.h"

namespace dslaunch {

double Progress::Span::seconds() const {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Progress::Progress(const Options& options)
    : options_(options),
      status_(options.status_fd),
      status_line_{.event = StatusLine::Event::kStep, .loss = {}, .samples_per_s = {}} {
  if (options.rank == 0 && !options.metrics_jsonl.empty()) {
    metrics_.emplace(options.metrics_jsonl, "run.metrics_jsonl");
  }
  if (!options.rank_dir.empty()) OpenRankMetrics();
}

// Opens the rank's metrics file. If that fails, prints a warning, so that training continues.
void Progress::OpenRankMetrics() {
  try {
    rank_metrics_.emplace(options_.rank_dir + "/" + kMetricsFileName, kRankDirVariable);
  } catch (const TrainError& error) {
    PrintLine(std::string("no metrics for the job's report: ") + error.what());
  }
}

void Progress::Start(const Schedule& schedule, int64_t samples_before) {
  schedule_ = schedule;
  status_line_.total_steps = schedule.total_steps;
  samples_ = samples_before;
  window_ = Span{};
  epoch_ = Span{};
  start_ = Clock::now();
}

void Progress::AddStep(const StepInfo& info) {
  last_ = info;
  window_.loss += info.loss;
  ++window_.steps;
  window_.samples += info.samples;
  window_.compute_s += info.compute_s;
  NoteBadStep(info);
  if (info.skipped) options_.log.Warning(SkippedLine(info.step, info.skip_reason));
  status_line_.step = info.step;
  status_line_.compute_s = info.compute_s;
}

void Progress::NoteBadStep(const StepInfo& info) {
  const bool finite = std::isfinite(info.loss);
  if (finite && (!info.skipped || options_.loss_scale_adapts)) {
    bad_steps_.reset();
    return;
  }
  if (!bad_steps_) bad_steps_ = Divergence{info.step, options_.rank, info.loss};
  ++bad_steps_->steps;
  if (diverged_) return;
  if (!info.skipped) {
    diverged_ = Divergence{info.step, options_.rank, info.loss};
    return;
  }
  const int64_t all = schedule_.total_steps - schedule_.first_step;
  if (bad_steps_->steps >= std::min(kMostBadSteps, all)) diverged_ = bad_steps_;
}

RankWindow Progress::Window() const {
  RankWindow window;
  window.loss = window_.loss;
  window.seconds = window_.seconds();
  window.diverged = diverged_;
  window.bad_steps = bad_steps_ ? bad_steps_->steps : 0;
  return window;
}

void Progress::EndWindow(const AllWindows& all) {
  const double loss = all.loss / static_cast<double>(window_.steps);
  const double seconds = window_.seconds();
  const double samples_per_s = static_cast<double>(window_.samples) / seconds;
  samples_ += window_.samples;
  epoch_.steps += window_.steps;
  epoch_.samples += window_.samples;
  if (std::isfinite(all.loss)) {  // losses of skipped steps may be NaN or infinite
    epoch_.loss += all.loss;
    epoch_.losses += window_.steps;
  }
  window_loss_ = loss;
  status_line_.loss = loss;
  status_line_.samples_per_s = samples_per_s;
  if (options_.tokens_per_sample > 0)
    status_line_.tokens_per_s = samples_per_s * static_cast<double>(options_.tokens_per_sample);
  if (metrics_ || rank_metrics_) WriteMetrics(Metrics(loss, all.memory));
  const int64_t every = schedule_.print_every;
  if (every > 0 && last_.step % every == 0) PrintStep(loss, samples_per_s);
  if (schedule_.EndsEpoch(last_.step)) {
    PrintEpoch();
    epoch_ = Span{};
  }
  window_ = Span{};
}

void Progress::LeaveOut(Clock::duration time) {
  window_.start += time;
  epoch_.start += time;
  start_ += time;
}

double Progress::training_s() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

StepMetrics Progress::Metrics(double loss, const MemoryBytes& memory) const {
  const auto steps = static_cast<double>(window_.steps);
  const double seconds = window_.seconds();
  StepMetrics metrics = {.step = last_.step,
                         .attempt = options_.attempt,
                         .epoch = schedule_.EpochOf(last_.step),
                         .loss = loss,
                         .lr = last_.lr,
                         .grad_norm = last_.grad_norm,
                         .loss_scale = last_.loss_scale,
                         .skipped = last_.skipped,
                         .samples = samples_,
                         .tokens = samples_ * options_.tokens_per_sample,
                         .steps = window_.steps,
                         .step_s = seconds / steps,
                         .compute_s = window_.compute_s / steps,
                         .samples_per_s = static_cast<double>(window_.samples) / seconds,
                         .memory = memory};
  metrics.tokens_per_s = metrics.samples_per_s * static_cast<double>(options_.tokens_per_sample);
  if (flops_per_step_ > 0 && peak_flops_ > 0) {
    metrics.mfu = flops_per_step_ / (metrics.step_s * peak_flops_);
  }
  return metrics;
}

void Progress::WriteMetrics(const StepMetrics& metrics) {
  if (metrics_) metrics_->Append(MetricsJson(metrics));
  WriteRankMetrics(options_.rank == 0 ? MetricsJson(metrics) : OwnMetricsJson(metrics));
}

void Progress::AddEvaluation(int64_t step, const EvaluationResults& results) {
  if (options_.rank != 0) return;
  const int64_t epoch = schedule_.batches_per_epoch > 0 ? schedule_.EpochOf(step) : 0;
  const std::string json = EvaluationJson(step, epoch, options_.attempt, results);
  if (metrics_) metrics_->Append(json);
  WriteRankMetrics(json);
  status_.Evaluated(step, results);
}

void Progress::WriteRankMetrics(const std::string& json) {
  if (!rank_metrics_) return;
  try {
    rank_metrics_->Append(json);
  } catch (const TrainError& error) {
    rank_metrics_.reset();
    PrintLine(std::string("no more metrics for the job's report: ") + error.what());
  }
}

void Progress::PrintStep(double loss, double samples_per_s) const {
  options_.log.Result(Format("step %lld/%lld: loss %.4f, lr %g, %s",
                             static_cast<long long>(last_.step),
                             static_cast<long long>(schedule_.total_steps), WithoutSignOfNan(loss),
                             last_.lr, Rate(samples_per_s).c_str()));
}

void Progress::PrintEpoch() const {
  options_.log.Info(Format("epoch %lld/%lld: loss %.4f, %s",
                           static_cast<long long>(schedule_.EpochOf(last_.step)),
                           static_cast<long long>(schedule_.EpochOf(schedule_.total_steps)),
                           epoch_.loss / static_cast<double>(epoch_.losses),
                           Rate(static_cast<double>(epoch_.samples) / epoch_.seconds()).c_str()));
}

std::string Progress::Rate(double samples_per_s) const {
  const int64_t tokens = options_.tokens_per_sample;
  if (tokens == 0) return Format("%.0f samples/s", samples_per_s);
  return Format("%.0f tokens/s", samples_per_s * static_cast<double>(tokens));
}

}  // namespace dslaunch
