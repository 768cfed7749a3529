#include "cli/output/progress_view.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/text/size_text.h"

namespace dslaunch {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLiveInterval{100};
constexpr milliseconds kPlainInterval{5000};
constexpr int64_t kPlainParts = 10;
constexpr milliseconds kMinMeasure{100};  // shortest span over which the rate is measured
constexpr int kLeastBar = 8;              // columns of the shortest useful bar
constexpr int kMostBar = 30;
constexpr double kSmoothing_s = 10;  // time constant for smoothing the rate

double Seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

std::string Format(const char* format, double value) {
  char text[48];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string Rate(double per_s) { return Format(per_s < 100 ? "%.3g" : "%.0f", per_s); }

std::string TimeLeft(double seconds) {
  return DurationText(1000 * static_cast<int64_t>(std::ceil(std::min(seconds, 1e9))));
}

// Returns the index of the part that contains `step`, if the run is divided into kPlainParts equal
// parts.
int64_t PartOf(int64_t step, int64_t total_steps) {
  return static_cast<int64_t>(static_cast<double>(step) / static_cast<double>(total_steps) *
                              kPlainParts);
}

}  // namespace

std::optional<std::string> ProgressView::Update(const StatusLine& status, TimePoint now) {
  if (status.event != StatusLine::Event::kStep) return std::nullopt;
  const bool restarted = has_status_ && status.step < status_.step;
  const bool first = !has_status_ || restarted;
  status_ = status;
  has_status_ = true;
  // Another rank may have reported the same step already, so a step that was shown is not shown
  // again.
  shown_ = shown_ && status.step == shown_step_;
  if (first) {
    anchor_at_ = now;
    anchor_step_ = status.step;
    steps_per_s_ = 0;
    shown_step_ = -1;
  } else {
    Smooth(now);
  }
  if (shown_ || !IsDue(now)) return std::nullopt;
  shown_at_ = now;
  return Last();
}

std::optional<std::string> ProgressView::Last() {
  if (shown_) return std::nullopt;
  shown_ = true;
  shown_step_ = status_.step;
  return Text();
}

bool ProgressView::IsDue(TimePoint now) const {
  if (shown_step_ < 0) return true;
  if (now - shown_at_ >= (live_ ? kLiveInterval : kPlainInterval)) return true;
  if (status_.total_steps <= 0) return false;
  if (status_.step >= status_.total_steps) return true;
  return !live_ &&
         PartOf(status_.step, status_.total_steps) > PartOf(shown_step_, status_.total_steps);
}

void ProgressView::Smooth(TimePoint now) {
  if (now - anchor_at_ < kMinMeasure) return;
  const double span_s = Seconds(now - anchor_at_);
  const double rate = static_cast<double>(status_.step - anchor_step_) / span_s;
  const double weight = steps_per_s_ > 0 ? 1 - std::exp(-span_s / kSmoothing_s) : 1;
  steps_per_s_ += weight * (rate - steps_per_s_);
  anchor_at_ = now;
  anchor_step_ = status_.step;
}

std::string ProgressView::Line(int columns) const {
  if (!has_status_) return "";
  if (status_.total_steps <= 0) return Text();
  const double done = std::clamp(
      static_cast<double>(status_.step) / static_cast<double>(status_.total_steps), 0.0, 1.0);
  char percent[16];
  std::snprintf(percent, sizeof percent, " %3.0f%%", std::floor(done * 100));
  // Writing to the last column makes some terminals wrap, so this column stays free, as in
  // FitToWidth.
  const int room = columns - 1 - static_cast<int>(Text().size() + sizeof "  []" - 1) - 5;
  if (room < kLeastBar) return Text();
  const auto width = static_cast<size_t>(std::min(room, kMostBar));
  const auto filled = static_cast<size_t>(done * static_cast<double>(width));
  return Text("  [" + std::string(filled, '=') +
              (filled < width ? ">" + std::string(width - filled - 1, ' ') : "") + "]" + percent);
}

std::string ProgressView::Text(const std::string& bar) const {
  std::string text = "step " + std::to_string(status_.step);
  if (status_.total_steps > 0) text += "/" + std::to_string(status_.total_steps);
  text += bar;
  if (status_.loss) text += "  loss " + Format("%.4g", *status_.loss);
  if (status_.tokens_per_s)
    text += "  " + Rate(*status_.tokens_per_s) + " tokens/s";
  else if (status_.samples_per_s)
    text += "  " + Rate(*status_.samples_per_s) + " samples/s";
  if (status_.total_steps > status_.step && steps_per_s_ > 0) {
    text += "  time left " +
            TimeLeft(static_cast<double>(status_.total_steps - status_.step) / steps_per_s_);
  }
  return text;
}

}  // namespace dslaunch
