#include "cli/report/report_plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>

namespace dslaunch {
namespace {

constexpr double kSmallest = 1e-30;  // smallest value on a logarithmic axis
constexpr int kPointed = 60;         // number of tooltips along the x axis

template <class... Values>
std::string Print(const char* format, Values... values) {
  char text[512];
  std::snprintf(text, sizeof text, format, values...);  // NOLINT: the formats are below
  return text;
}

// Returns 1, 2 or 5 times a power of ten, not below `step`.
double NiceStep(double step) {
  const double power = std::pow(10, std::floor(std::log10(step)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (step <= factor * power * (1 + 1e-9)) return factor * power;
  }
  return 10 * power;
}

std::vector<double> LinearTicks(double low, double high, int wanted) {
  const double step = NiceStep((high - low) / wanted);
  std::vector<double> ticks;
  const double first = std::ceil(low / step - 1e-6);
  for (int i = 0; i <= 2 * wanted + 1; ++i) {
    const double tick = (first + i) * step;
    if (tick > high + step * 1e-6) break;
    ticks.push_back(first + i == 0 ? 0 : tick);
  }
  return ticks;
}

std::vector<double> PowerTicks(double low, double high, int wanted, double base) {
  const double log_base = std::log(base);
  const double first = std::ceil(std::log(low) / log_base - 1e-6);
  const double last = std::floor(std::log(high) / log_base + 1e-6);
  const double step = std::max(1.0, std::ceil((last - first) / wanted));
  std::vector<double> ticks;
  for (double power = first; power <= last; power += step) ticks.push_back(std::pow(base, power));
  return ticks;
}

// Maps numbers to coordinates.
class Axis {
 public:
  Axis(double low, double high, double from, double to, PlotScale scale)
      : is_log_(scale != PlotScale::kLinear),
        low_(Value(low)),
        factor_((to - from) / std::max(Value(high) - Value(low), 1e-300)),
        from_(from) {}
  double operator()(double value) const { return from_ + (Value(value) - low_) * factor_; }

 private:
  double Value(double value) const { return is_log_ ? std::log(value) : value; }
  bool is_log_;
  double low_;
  double factor_;
  double from_;
};

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void Add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

// Widens the range by a margin, so that its size is never 0.
Range WithAir(Range range, PlotScale scale, bool from_zero) {
  if (scale != PlotScale::kLinear) {
    const double air = range.high > range.low * 1.0001 ? std::pow(range.high / range.low, 0.05) : 2;
    return {range.low / air, range.high * air};
  }
  if (from_zero && range.low >= 0) {
    range.high = range.high > 0 ? range.high * 1.08 : 1;
    range.low = 0;
    return range;
  }
  const double size = range.high - range.low;
  const double most = std::max(std::abs(range.low), std::abs(range.high));
  const double air = size > most * 1e-9 ? size * 0.06 : most > 0 ? most * 0.1 : 1;
  return {range.low >= 0 && range.low < air ? 0 : range.low - air, range.high + air};
}

class Drawing {
 public:
  explicit Drawing(const Plot& plot) : plot_(plot) {
    const auto take = [&](double x, double y) {
      if (!CanShow(y)) return;
      x_.Add(x);
      y_.Add(y);
    };
    for (const Plot::Line& line : plot.lines) {
      for (const auto& piece : line.pieces) {
        for (const auto& [x, y] : piece) take(x, y);
      }
    }
    for (const auto& [x, ends] : plot.band) {
      take(x, ends.first);
      take(x, ends.second);
    }
  }

  bool empty() const { return x_.empty(); }

  std::string Draw() {
    if (plot_.y_limit > 0 && plot_.y_limit > y_.low) y_.high = std::min(y_.high, plot_.y_limit);
    y_ = WithAir(y_, plot_.scale, plot_.from_zero);
    if (x_.low == x_.high) x_ = {x_.low - 1, x_.high + 1};
    const Axis x(x_.low, x_.high, kLeft, plot_.width - kRight, PlotScale::kLinear);
    const Axis y(y_.low, y_.high, plot_.height - kBottom, kTop, plot_.scale);
    std::string svg = Print("<svg class=\"plot\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"",
                            plot_.width, plot_.height) +
                      Escaped(plot_.title) + "\">";
    DrawAxes(x, y, svg);
    DrawMarks(x, svg);
    // A nested <svg> clips what lies outside.
    svg += Print("<svg x=\"0\" y=\"%d\" width=\"%d\" height=\"%d\" viewBox=\"0 %d %d %d\">", kTop,
                 plot_.width, plot_.height - kTop - kBottom, kTop, plot_.width,
                 plot_.height - kTop - kBottom);
    DrawBand(x, y, svg);
    for (const Plot::Line& line : plot_.lines) DrawLine(line, x, y, svg);
    svg += "</svg>";
    DrawCrosses(x, svg);
    DrawPointed(x, svg);
    return svg + "</svg>";
  }

 private:
  static constexpr int kLeft = 58;
  static constexpr int kRight = 14;
  static constexpr int kTop = 22;
  static constexpr int kBottom = 26;

  bool CanShow(double y) const { return plot_.scale == PlotScale::kLinear || y >= kSmallest; }

  int Columns() const { return (plot_.width - kLeft - kRight) / 2; }

  void DrawAxes(const Axis& x, const Axis& y, std::string& svg) const {
    const int floor = plot_.height - kBottom;
    for (const double tick : AxisTicks(y_.low, y_.high, 5, plot_.scale)) {
      svg += Print("<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>", kLeft,
                   plot_.width - kRight, y(tick), y(tick));
      svg += Print("<text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", kLeft - 7,
                   y(tick) + 4) +
             Escaped(plot_.number(tick)) + "</text>";
    }
    svg += Print("<line class=\"axis\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>", kLeft,
                 plot_.width - kRight, floor, floor);
    for (const double tick :
         AxisTicks(x_.low, x_.high, std::max(plot_.width / 100, 5), PlotScale::kLinear)) {
      if (tick != std::floor(tick)) continue;  // steps are whole numbers
      svg += Print("<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">", x(tick),
                   floor + 17) +
             ShortNumber(tick) + "</text>";
    }
    svg += Print("<text class=\"tick\" x=\"%d\" y=\"%d\" text-anchor=\"end\">step</text>",
                 kLeft - 22, floor + 17);  // beside the first number
    if (!plot_.unit.empty())
      svg += "<text class=\"tick\" x=\"2\" y=\"12\">" + Escaped(plot_.unit) + "</text>";
  }

  void DrawMarks(const Axis& x, std::string& svg) const {
    double free_from = kLeft;  // where the next label may begin
    double last = -1;
    for (const Plot::Mark& mark : plot_.marks) {
      if (mark.x < x_.low || mark.x > x_.high) continue;
      const double at = x(mark.x);
      if (at < last + 1) continue;  // indistinguishable from the previous mark
      last = at;
      svg += Print("<line class=\"%s\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>",
                   mark.strong ? "mark strong" : "mark", at, at, kTop - 4, plot_.height - kBottom);
      const double size = 6.0 * static_cast<double>(mark.label.size());
      const double begin = std::min(at + 3, plot_.width - kRight - size);
      if (mark.label.empty() || begin < free_from) continue;
      svg += Print("<text class=\"tick\" x=\"%.1f\" y=\"12\">", begin) + Escaped(mark.label) +
             "</text>";
      free_from = begin + size + 8;
    }
  }

  void DrawBand(const Axis& x, const Axis& y, std::string& svg) const {
    std::string there, back;
    for (const auto& [at, ends] : plot_.band) {
      if (!CanShow(ends.first)) continue;
      there += Print("%.1f,%.1f ", x(at), y(ends.second));
      back = Print("%.1f,%.1f ", x(at), y(ends.first)) + back;
    }
    if (!there.empty()) svg += "<polygon class=\"band\" points=\"" + there + back + "\"/>";
  }

  void DrawLine(const Plot::Line& line, const Axis& x, const Axis& y, std::string& svg) const {
    const std::string color = line.color < 0 ? "grey" : "c" + std::to_string(line.color % 8);
    const std::string classes = color + (line.faint ? " faint" : "");
    for (const std::vector<PlotPoint>& piece : line.pieces) {
      std::string points;
      size_t count = 0;
      PlotPoint last;
      for (const PlotPoint& point : Thinned(piece, Columns())) {
        if (!CanShow(point.second)) continue;
        last = {x(point.first), y(point.second)};
        points += Print("%.1f,%.1f ", last.first, last.second);
        ++count;
      }
      if (count > 1) {
        points.pop_back();
        svg += "<polyline class=\"line " + classes + "\" points=\"" + points + "\"/>";
      } else if (count == 1) {
        svg += Print("<circle class=\"dot %s\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>", classes.c_str(),
                     last.first, last.second);
      }
    }
  }

  void DrawCrosses(const Axis& x, std::string& svg) const {
    double last = -10;
    for (const double at : plot_.crosses) {
      const double place = x(at);
      if (place < last + 3 || at < x_.low || at > x_.high) continue;
      svg += Print("<path class=\"cross\" d=\"M%.1f %dl6 6m0 -6l-6 6\"/>", place - 3,
                   plot_.height - kBottom - 9);
      last = place;
    }
  }

  // Adds tooltips with the numbers of the lines in the legend.
  void DrawPointed(const Axis& x, std::string& svg) const {
    const double width = double(plot_.width - kLeft - kRight) / kPointed;
    for (int i = 0; i < kPointed; ++i) {
      const double from = kLeft + i * width;
      std::string text;
      double step = 0;
      for (const Plot::Line& line : plot_.lines) {
        if (line.faint && line.name.empty()) continue;
        for (const auto& piece : line.pieces) {
          const auto found = std::ranges::lower_bound(
              piece, from, {}, [&](const PlotPoint& point) { return x(point.first); });
          if (found == piece.end() || x(found->first) >= from + width + 0.01) continue;
          if (text.empty()) step = found->first;
          text += "\n" + (line.name.empty() ? "" : line.name + ": ") + plot_.number(found->second);
        }
      }
      if (text.empty()) continue;
      svg +=
          Print("<rect class=\"pointed\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"><title>",
                from, kTop, width, plot_.height - kTop - kBottom) +
          Print("step %.0f", step) + Escaped(text) + "</title></rect>";
    }
  }

  const Plot& plot_;
  Range x_;
  Range y_;
};

std::string Trimmed(std::string number) {
  if (number.find('.') == std::string::npos || number.find('e') != std::string::npos) return number;
  number.erase(number.find_last_not_of('0') + 1);
  if (number.back() == '.') number.pop_back();
  return number;
}

}  // namespace

std::string Escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string ShortNumber(double value) {
  if (!std::isfinite(value)) return "?";
  const double size = std::abs(value);
  static constexpr std::array<std::pair<double, const char*>, 4> kUnits = {
      {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e4, "k"}}};
  if (size < 1e15) {
    for (const auto& [unit, name] : kUnits) {
      if (size >= unit * 0.99999) return Print("%.4g", value / (unit == 1e4 ? 1e3 : unit)) + name;
    }
  }
  return Print("%.4g", value);
}

std::string ShortBytes(double bytes) {
  if (!std::isfinite(bytes)) return "?";
  if (bytes < 0) return "−" + ShortBytes(-bytes);
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= 1000 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return (bytes < 100 && unit > 0 ? Trimmed(Print("%.1f", bytes))
                                  : Print("%.4g", std::round(bytes))) +
         " " + kUnits[unit];
}

std::string ShortSeconds(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  if (seconds == 0) return "0 s";
  if (seconds < 1e-3) return Print("%.3g µs", seconds * 1e6);
  if (seconds < 1) return Print("%.3g ms", seconds * 1e3);
  if (seconds < 100) return Print("%.3g s", seconds);
  const double minutes = std::floor(std::round(seconds) / 60);
  const double hours = std::floor(minutes / 60);
  const auto two = [](double large, const char* unit, double small, const char* small_unit) {
    const std::string text = Print("%.0f ", large) + unit;
    return small == 0 ? text : text + Print(" %.0f ", small) + small_unit;
  };
  return hours < 1 ? two(minutes, "min", std::round(seconds) - minutes * 60, "s")
                   : two(hours, "h", minutes - hours * 60, "min");
}

std::string Percent(double part) {
  if (!std::isfinite(part)) return "?";
  const double percent = part * 100;
  if (percent != 0 && std::abs(percent) < 0.05) return "<0.1%";
  return Print(percent != 0 && std::abs(percent) < 10 ? "%.1f%%" : "%.0f%%", percent);
}

std::vector<double> AxisTicks(double low, double high, int wanted, PlotScale scale) {
  if (!(high > low)) return {low};
  if (scale != PlotScale::kLinear) {
    std::vector<double> ticks = PowerTicks(low, high, wanted, scale == PlotScale::kLog2 ? 2 : 10);
    if (ticks.size() >= 2) return ticks;
  }
  std::vector<double> ticks = LinearTicks(low, high, std::max(wanted, 1));
  return ticks.empty() ? std::vector<double>{low} : ticks;
}

std::vector<PlotPoint> Thinned(const std::vector<PlotPoint>& points, int columns) {
  if (points.size() <= static_cast<size_t>(columns) * 4) return points;
  const double from = points.front().first;
  const double size = std::max(points.back().first - from, 1e-300);
  const auto column = [&](const PlotPoint& point) {
    return std::min(static_cast<int>((point.first - from) / size * columns), columns - 1);
  };
  std::vector<PlotPoint> kept;
  for (auto begin = points.begin(); begin != points.end();) {
    const auto end = std::find_if(begin, points.end(), [&](const PlotPoint& point) {
      return column(point) != column(*begin);
    });
    const auto [lowest, highest] = std::minmax_element(
        begin, end, [](const PlotPoint& a, const PlotPoint& b) { return a.second < b.second; });
    std::array keep = {begin, lowest, highest, end - 1};
    std::ranges::sort(keep);
    const auto repeated = std::unique(keep.begin(), keep.end());
    for (auto it = keep.begin(); it != repeated; ++it) kept.push_back(**it);
    begin = end;
  }
  return kept;
}

std::vector<PlotPoint> Smoothed(const std::vector<PlotPoint>& points, size_t reach) {
  std::vector<double> sums = {0};
  for (const auto& [x, y] : points) sums.push_back(sums.back() + y);
  std::vector<PlotPoint> smooth;
  for (size_t i = 0; i < points.size(); ++i) {
    const size_t before = std::min(reach, i);
    const size_t after = std::min(before, points.size() - 1 - i);
    const double sum = sums[i + after + 1] - sums[i - before];
    smooth.emplace_back(points[i].first, sum / static_cast<double>(before + after + 1));
  }
  return smooth;
}

std::string DrawPlot(const Plot& plot) {
  Drawing drawing(plot);
  return drawing.empty() ? "" : drawing.Draw();
}

}  // namespace dslaunch
