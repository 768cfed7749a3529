#include "cli/report/report_html.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>

#include "base/count.h"

namespace dslaunch {
namespace {

constexpr int kNarrowHeight = 230;

}  // namespace

std::string Card(const std::string& id, const std::string& heading, const std::string& lead,
                 const std::string& body, Width width) {
  static constexpr const char* kClasses[] = {"third", "half", "wide"};
  return std::string("<section class=\"card ") + kClasses[static_cast<size_t>(width)] + "\" id=\"" +
         id + "\"><h2>" + Escaped(heading) + "</h2>" +
         (lead.empty() ? "" : "<p class=\"lead\">" + lead + "</p>") + body + "</section>";
}

std::string Missing(const std::string& id, const std::string& heading, const std::string& why) {
  return "<li id=\"" + id + "\"><strong>" + Escaped(heading) + "</strong>: " + Escaped(why) +
         "</li>";
}

bool IsMissing(const std::string& section) { return section.starts_with("<li"); }

std::string PlotHtml(const Plot& plot) {
  std::string legend;
  size_t named = 0;
  for (const Plot::Line& line : plot.lines) {
    if (line.name.empty()) continue;
    ++named;
    const std::string color = line.color < 0 ? "grey" : "c" + std::to_string(line.color % 8);
    legend += "<li><i class=\"" + color + "\"></i>" + Escaped(line.name) + "</li>";
  }
  if (named < 2) legend.clear();
  if (!legend.empty()) legend = "<ul class=\"legend\">" + legend + "</ul>";
  if (plot.width < kWholeWidth) return legend + DrawPlot(plot);
  Plot narrow = plot;
  narrow.width = kThirdWidth;
  narrow.height = kNarrowHeight;
  return legend + "<div class=\"on-wide\">" + DrawPlot(plot) + "</div><div class=\"on-narrow\">" +
         DrawPlot(narrow) + "</div>";
}

std::string BarHtml(const std::vector<std::pair<double, std::string>>& parts) {
  std::string html = "<span class=\"bar\">";
  for (const auto& [part, color] : parts) {
    const int promille = static_cast<int>(std::lround(std::clamp(part, 0.0, 1.0) * 1000));
    html += "<i class=\"" + color + "\" style=\"width:" + std::to_string(promille / 10) + "." +
            std::to_string(promille % 10) + "%\"></i>";
  }
  return html + "</span>";
}

std::string Cell(const std::string& text, const char* type) {
  return std::string("<td class=\"") + type + "\">" + Escaped(text) + "</td>";
}

std::string AccuracyText(double part) {
  char text[64];
  std::snprintf(text, sizeof text, "%.2f%%", part * 100);
  return text;
}

std::string SignedPercent(double part) {
  return (part == 0 ? "±" : part < 0 ? "−" : "+") + Percent(std::abs(part));
}

std::string TableHtml(const std::vector<std::string>& columns, const std::string& rows) {
  std::string html = "<div class=\"scroll\"><table><thead><tr>";
  for (const std::string& column : columns) {
    const bool is_number = column.starts_with(' ');
    html += std::string(is_number ? "<th class=\"n\">" : "<th>") +
            Escaped(is_number ? column.substr(1) : column) + "</th>";
  }
  return html + "</tr></thead><tbody>" + rows + "</tbody></table></div>";
}

std::string MoreText(size_t all, size_t shown, const std::string& what,
                     const std::string& together) {
  if (all <= shown) return "";
  return "<p class=\"missing\">" +
         Escaped("and " + Count(all - shown, "more " + what) +
                 (together.empty() ? "" : ", together " + together) + ".") +
         "</p>";
}

std::string TimeText(int64_t unix_ms) {
  if (unix_ms == 0) return "?";
  const std::time_t seconds = unix_ms / 1000;
  std::tm local{};
  char text[64];
  if (localtime_r(&seconds, &local) == nullptr ||
      std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S %Z", &local) == 0)
    return "?";
  return text;
}

}  // namespace dslaunch
