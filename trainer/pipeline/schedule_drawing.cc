// Draws schedules as text and as SVG (schedule_simulation.h).
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "trainer/base/format.h"
#include "trainer/pipeline/schedule_check.h"
#include "trainer/pipeline/schedule_simulation.h"

namespace dslaunch {
namespace {

double Shortest(const SimulatedRun& run) {
  double shortest = run.total;
  for (const std::vector<TimedAction>& actions : run.stages) {
    for (const TimedAction& timed : actions) {
      if (timed.end > timed.start) shortest = std::min(shortest, timed.end - timed.start);
    }
  }
  return shortest;
}

// Returns the peak number of live micro-batches of each stage: "4", or "2/4" if the stage holds
// more for the gradients of weights.
std::vector<std::string> LiveTexts(const PipelineSchedule& schedule) {
  const std::vector<int> live = PeakLiveMicroBatches(schedule);
  const std::vector<int> held = PeakHeldMicroBatches(schedule);
  std::vector<std::string> texts;
  for (size_t s = 0; s < live.size(); ++s) {
    texts.push_back(std::to_string(live[s]));
    if (held[s] != live[s]) texts.back() += "/" + std::to_string(held[s]);
  }
  return texts;
}

std::string Percent(double fraction) { return Format("%.1f%%", 100 * fraction); }

double IdleFraction(const SimulatedRun& run, size_t stage) {
  return run.total > 0 ? run.idle[stage] / run.total : 0;
}

std::string Title(const PipelineSchedule& schedule, const SimulatedRun& run) {
  const auto counted = [](int number, const std::string& what, const char* plural) {
    return std::to_string(number) + " " + what + (number == 1 ? "" : plural);
  };
  std::string title = ScheduleTypeName(schedule.type);
  title += ": " + counted(schedule.stages, "stage", "s");
  if (schedule.virtual_stages > 1) {
    title += " of " + counted(schedule.virtual_stages, "chunk", "s");
  }
  return title + ", " + counted(schedule.micro_batches, "micro-batch", "es") + ", idle " +
         Percent(run.idle_fraction);
}

bool Contains(const SimulatedRun& run, ActionKind kind) {
  return std::any_of(run.stages.begin(), run.stages.end(), [&](const auto& actions) {
    return std::any_of(actions.begin(), actions.end(),
                       [&](const TimedAction& timed) { return timed.action.kind == kind; });
  });
}

std::string LiveLegend(const SimulatedRun& run) {
  std::string legend = "live: most micro-batches held until their backward pass";
  if (Contains(run, ActionKind::kBackwardWeight)) legend += " / until w";
  return legend;
}

// Letters and colours of the computing actions. Colour-blind people can distinguish the colours
// (Okabe and Ito 2008).
struct Look {
  ActionKind kind;
  char first_mark;  // mark of micro-batch 0 in the drawing
  int marks;        // number of different marks; micro-batches reuse them cyclically
  const char* legend;
  const char* colour;
  const char* name;
};

constexpr Look kLooks[] = {
    {ActionKind::kForward, '0', 10, "0-9 forward (last digit of the micro-batch)", "#56b4e9",
     "F forward"},
    {ActionKind::kBackward, 'a', 10, "a-j backward", "#e69f00", "B backward"},
    {ActionKind::kBackwardInput, 'A', 10, "A-J backward (inputs only)", "#f0e442",
     "I backward, inputs only"},
    {ActionKind::kBackwardWeight, 'w', 1, "w backward (weights)", "#009e73",
     "W backward, weights"}};

const Look& LookOf(ActionKind kind) {
  return *std::find_if(std::begin(kLooks), std::end(kLooks),
                       [&](const Look& look) { return look.kind == kind; });
}

// Draws a stage in `cells` columns, with `per_time` columns per unit of time. A column shows the
// action that runs at the middle of the column's time.
std::string TextRow(const std::vector<TimedAction>& actions, size_t cells, double per_time) {
  std::string row(cells, '.');
  for (const TimedAction& timed : actions) {
    const Look& look = LookOf(timed.action.kind);
    const double begin = std::max(0.0, std::ceil(timed.start * per_time - 0.5));
    for (size_t i = static_cast<size_t>(begin); i < cells; ++i) {
      if ((static_cast<double>(i) + 0.5) >= timed.end * per_time) break;
      row[i] = static_cast<char>(look.first_mark + timed.action.micro_batch % look.marks);
    }
  }
  return row;
}

// Joins the items with commas, and breaks lines that would be longer than `columns`.
std::string Wrapped(const std::vector<std::string>& items, size_t columns) {
  std::string text, line;
  for (const std::string& item : items) {
    if (!line.empty() && line.size() + 2 + item.size() > columns) {
      text += line + ",\n";
      line.clear();
    }
    line += (line.empty() ? "" : ", ") + item;
  }
  return text + line + "\n";
}

std::string Rect(double x, double y, double width, double height, const std::string& style) {
  return Format("<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" ", x, y, width,
                height) +
         style;
}

std::string Label(double x, double y, const std::string& style, const std::string& text) {
  return Format("<text x=\"%.2f\" y=\"%.2f\"", x, y) + style + ">" + text + "</text>\n";
}

}  // namespace

std::string DrawText(const PipelineSchedule& schedule, const SimulatedRun& run, int columns) {
  constexpr size_t kBefore = 20;
  constexpr int kFewestColumns = 72;
  const size_t width = static_cast<size_t>(std::max(columns, kFewestColumns));
  size_t cells = width - kBefore;
  const double shortest = Shortest(run);
  double per_time = run.total > 0 ? static_cast<double>(cells) / run.total : 0;
  const bool all_visible = per_time * shortest >= 1;
  if (all_visible) {
    // Equal times should look equal, so the scale is rounded until the shortest action takes whole
    // columns.
    per_time = std::floor(per_time * shortest + 1e-9) / shortest;
    cells = std::min(cells, static_cast<size_t>(std::ceil(run.total * per_time - 0.5)));
  }
  const std::vector<std::string> live = LiveTexts(schedule);
  std::string text = Wrapped({Title(schedule, run)}, width) + "stage  live   idle  time\n";
  for (size_t s = 0; s < run.stages.size(); ++s) {
    text += Format("%5zu %5s %6s  ", s, live[s].c_str(), Percent(IdleFraction(run, s)).c_str()) +
            TextRow(run.stages[s], cells, per_time) + "\n";
  }
  std::vector<std::string> legend;
  for (const Look& look : kLooks) {
    if (Contains(run, look.kind)) legend.push_back(look.legend);
  }
  legend.push_back(". idle");
  legend.push_back(LiveLegend(run));
  if (!all_visible) legend.push_back("shorter than a column: may be hidden");
  return text + Wrapped(legend, width);
}

std::string DrawSvg(const PipelineSchedule& schedule, const SimulatedRun& run) {
  constexpr double kLeft = 170, kTop = 40, kRow = 30, kBox = 24, kShortest = 28, kWidest = 6000;
  const double scale = run.total > 0 ? std::min(kShortest / Shortest(run), kWidest / run.total) : 1;
  const double stages_end = kTop + kRow * static_cast<double>(run.stages.size());
  const double width = std::max(kLeft + run.total * scale + 10, 760.0);
  const double height = stages_end + 60;
  const std::string title = Title(schedule, run);
  std::string svg = Format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
      "viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" font-size=\"11\">\n",
      width, height, width, height);
  svg += "<title>" + title + "</title>\n";
  svg += Rect(0, 0, width, height, "fill=\"#ffffff\"/>\n");
  svg += Label(10, 22, " font-size=\"14\"", title);
  const std::vector<std::string> live = LiveTexts(schedule);
  for (size_t s = 0; s < run.stages.size(); ++s) {
    const double y = kTop + kRow * static_cast<double>(s);
    svg += Label(10, y + 16, "",
                 Format("stage %zu: live %s, idle %s", s, live[s].c_str(),
                        Percent(IdleFraction(run, s)).c_str()));
    svg += Rect(kLeft, y, run.total * scale, kBox, "fill=\"#eeeeee\"/>\n");
    for (const auto& [action, start, end] : run.stages[s]) {
      const std::string name = ActionName(action);
      const double x = kLeft + start * scale;
      const double box = (end - start) * scale;
      // Later chunks are drawn paler, so that chunks can be distinguished.
      const double opacity = 1 - 0.7 * action.chunk / schedule.virtual_stages;
      svg += Rect(x, y, box, kBox,
                  Format("fill=\"%s\" fill-opacity=\"%.2f\" stroke=\"#333333\" "
                         "stroke-width=\"0.5\">",
                         LookOf(action.kind).colour, opacity));
      svg += Format("<title>stage %zu, %s: from %.6g to %.6g</title></rect>\n", s, name.c_str(),
                    start, end);
      if (box >= 7.0 * static_cast<double>(name.size())) {
        svg += Label(x + box / 2, y + 16, " text-anchor=\"middle\"", name);
      }
    }
  }
  double x = 10;
  for (const Look& look : kLooks) {
    if (!Contains(run, look.kind)) continue;
    svg +=
        Rect(x, stages_end + 10, 14, 14, Format("fill=\"%s\" stroke=\"#333333\"/>\n", look.colour));
    svg += Label(x + 20, stages_end + 21, "", look.name);
    x += 180;
  }
  std::string rest = "grey: idle";
  if (schedule.virtual_stages > 1) rest += "; /1 and paler: later chunks";
  svg += Label(x, stages_end + 21, "", rest);
  svg += Label(10, stages_end + 44, "", LiveLegend(run));
  return svg + "</svg>\n";
}

}  // namespace dslaunch
