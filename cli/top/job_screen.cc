#include "cli/top/job_screen.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "base/count.h"
#include "base/text/sanitize.h"
#include "base/text/size_text.h"
#include "cli/output/shown_width.h"
#include "cli/top/outliers.h"
#include "cli/top/text_format.h"

namespace dslaunch {
namespace {

constexpr size_t kLabelColumns = 20;
constexpr size_t kLeastLabelColumns = 14;
constexpr size_t kRangeBytes = 28;
constexpr size_t kMostLastLines = 4;
constexpr size_t kRowsForLastLines = 18;  // least rows of a screen that shows output of ranks
constexpr double kPercent = 100;

constexpr char kKeys[] =
    "q quit  arrows choose  Enter open  s stacks  l log  o sort  x stop  h help";

// A column of the table. The columns are sorted by importance; a narrow screen omits the least
// important ones.
struct Column {
  const char* heading;
  size_t width;
  int position;  // index of the column from left to right
  std::function<std::optional<double>(const RankFigures&)> value;
  std::function<std::string(double)> text;
};

std::string Percent(double share) { return BriefNumber(std::round(share * kPercent)) + "%"; }
std::string PerSecond(double bytes) { return BriefBytes(bytes) + "/s"; }
std::string Whole(double number) { return std::to_string(static_cast<int64_t>(number)); }

const std::vector<Column>& Columns() {
  using F = RankFigures;
  static const auto& columns = *new std::vector<Column>{
      {"step", 8, 0, [](const F& f) { return f.step; }, Whole},
      {"GPU W", 6, 7, [](const F& f) { return f.power_w; }, Whole},
      {"mem", 6, 4, [](const F& f) { return f.memory_bytes; }, BriefBytes},
      {"step s", 7, 1, [](const F& f) { return f.step_s; }, BriefNumber},
      {"GPU mem", 8, 8, [](const F& f) { return f.gpu_memory_bytes; }, BriefBytes},
      {"wait", 5, 2, [](const F& f) { return f.waiting; }, Percent},
      {"cpu", 6, 3, [](const F& f) { return f.cpu; }, Percent},
      {"C", 4, 9, [](const F& f) { return f.temperature_c; }, Whole},
      {"net", 8, 5, [](const F& f) { return f.network_bytes; }, PerSecond},
      {"disk", 8, 6, [](const F& f) { return f.disk_bytes; }, PerSecond}};
  return columns;
}

std::string Fit(const std::string& text, size_t columns) {
  return static_cast<size_t>(ShownWidth(text)) < columns
             ? text
             : FitToWidth(text, static_cast<int>(columns));
}

std::string PadLeft(const std::string& text, size_t columns) {
  return text.size() >= columns ? text : std::string(columns - text.size(), ' ') + text;
}

std::string PadRight(std::string text, size_t columns) {
  const auto width = static_cast<size_t>(ShownWidth(text));
  return width >= columns ? text : text + std::string(columns - width, ' ');
}

// All figures of the job, computed once for each screen.
class Figures {
 public:
  explicit Figures(const JobModel& model) {
    for (const auto& [number, rank] : model.ranks())
      of_rank_.emplace(number, FiguresOf(model, rank));
  }
  // Returns the median of a column over `ranks`.
  std::optional<double> Median(const std::vector<uint32_t>& ranks, const Column& column) const {
    std::vector<double> values;
    for (const uint32_t rank : ranks) {
      const auto found = of_rank_.find(rank);
      if (found == of_rank_.end()) continue;
      if (const auto value = column.value(found->second)) values.push_back(*value);
    }
    return MedianValue(std::move(values));
  }
  // Returns whether any rank has a value in the column.
  bool Has(const Column& column) const {
    return std::ranges::any_of(
        of_rank_, [&](const auto& entry) { return column.value(entry.second).has_value(); });
  }

 private:
  std::map<uint32_t, RankFigures> of_rank_;
};

// Returns the columns that fit, from left to right. The first two columns are always included.
std::vector<const Column*> ChooseColumns(const Figures& figures, size_t columns) {
  std::vector<const Column*> chosen;
  constexpr size_t kTaken = kLeastLabelColumns + 1;  // the last column of a screen stays free
  size_t left = columns > kTaken ? columns - kTaken : 0;
  for (const Column& column : Columns()) {
    if (column.width + 1 > left || !figures.Has(column)) continue;
    left -= column.width + 1;
    chosen.push_back(&column);
  }
  std::ranges::sort(chosen, {}, [](const Column* column) { return column->position; });
  return chosen;
}

size_t LabelWidth(const std::vector<const Column*>& chosen, size_t columns) {
  size_t used = 1;
  for (const Column* column : chosen) used += column->width + 1;
  return std::clamp(columns > used ? columns - used : 0, kLeastLabelColumns, 2 * kLabelColumns);
}

void AddTo(std::string& line, const std::string& text) {
  line += (line.empty() ? "" : "  ") + text;
}

std::string HeadLine(const JobModel& model, const TopJob& job, const TopTime& time) {
  const size_t ranks = std::max<size_t>(model.world_size(), model.ranks().size());
  std::string line = "job " + job.job_id + "  " + model.StateText() + "  " +
                     Count(model.nodes().size(), "node") + ", " + Count(ranks, "rank") + "  " +
                     Count(model.restarts(), "restart");
  if (job.started_unix_ms > 0) {
    const int64_t up_ms = std::max<int64_t>(0, time.unix_ms - job.started_unix_ms);
    line += "  up " + DurationText(up_ms / 1000 * 1000);
  }
  return line;
}

std::string ProgressLine(const JobModel& model, const Figures& figures) {
  const ModelProgress& progress = model.progress();
  if (!progress.step) return "no step reported yet";
  std::vector<uint32_t> all;
  for (const auto& [number, rank] : model.ranks()) all.push_back(number);
  const auto median = [&](std::string_view heading) -> std::optional<double> {
    return figures.Median(all, *std::ranges::find_if(Columns(), [&](const Column& column) {
                            return column.heading == heading;
                          }));
  };
  std::string line = "step " + std::to_string(*progress.step);
  if (progress.total_steps > 0) line += "/" + std::to_string(progress.total_steps);
  if (progress.loss) AddTo(line, "loss " + BriefNumber(*progress.loss));
  if (progress.tokens_per_s)
    AddTo(line, BriefNumber(*progress.tokens_per_s) + " tokens/s");
  else if (progress.samples_per_s)
    AddTo(line, BriefNumber(*progress.samples_per_s) + " samples/s");
  const std::optional<double> step_s = median("step s");
  if (step_s) AddTo(line, BriefNumber(*step_s) + " s/step");
  if (const auto waiting = median("wait")) AddTo(line, Percent(*waiting) + " waiting");
  if (step_s && progress.total_steps > *progress.step) {
    constexpr double kMost_s = 1e9;
    const double left_s = static_cast<double>(progress.total_steps - *progress.step) * *step_s;
    const auto whole_s = static_cast<int64_t>(std::min(left_s, kMost_s));
    constexpr int64_t kMinute = 60, kCoarseFrom = 10 * kMinute;
    const int64_t shown_s = whole_s < kCoarseFrom ? whole_s : whole_s / kMinute * kMinute;
    AddTo(line, "left " + DurationText(shown_s * 1000));
  }
  return line;
}

std::string NodesLine(const JobModel& model) {
  double cpu = 0, cores = 0, used = 0, memory = 0, network = 0, disk = 0;
  for (const ModelNode& node : model.nodes()) {
    if (!node.sample) continue;
    cores += node.sample->machine().cores();
    used += static_cast<double>(node.sample->machine().memory_used_bytes());
    memory += static_cast<double>(node.sample->machine().memory_bytes());
    cpu += node.rates.cpu.value_or(0);
    network += node.rates.network_bytes.value_or(0);
    disk += node.rates.disk_bytes.value_or(0);
  }
  if (cores == 0) return "waiting for the first samples";
  std::string line = "nodes use " + BriefNumber(cpu) + " of " + BriefNumber(cores) + " cores";
  AddTo(line, BriefBytes(used) + " of " + BriefBytes(memory) + " memory");
  AddTo(line, "network " + PerSecond(network));
  AddTo(line, "disk " + PerSecond(disk));
  return line;
}

std::vector<std::string> JobLines(const JobModel& model, const TopJob& job, const TopTime& time,
                                  const Figures& figures) {
  return {HeadLine(model, job, time), ProgressLine(model, figures), NodesLine(model)};
}

std::vector<uint32_t> RanksOfNode(const std::map<size_t, std::vector<uint32_t>>& by_node,
                                  size_t node) {
  const auto found = by_node.find(node);
  return found == by_node.end() ? std::vector<uint32_t>() : found->second;
}

std::optional<double> SortValue(const RankFigures& figures, TopSort sort) {
  switch (sort) {
    case TopSort::kStep:
      // The step is negated, so that the lowest step comes first.
      return figures.step ? std::optional(-*figures.step) : std::nullopt;
    case TopSort::kStepTime:
      return figures.step_s;
    case TopSort::kMemory:
      return figures.memory_bytes;
    case TopSort::kCpu:
      return figures.cpu;
    case TopSort::kPower:
      return figures.power_w ? std::optional(-*figures.power_w) : std::nullopt;
    case TopSort::kRank:
      break;
  }
  return std::nullopt;
}

const char* SortText(TopSort sort) {
  switch (sort) {
    case TopSort::kStep:
      return "step";
    case TopSort::kStepTime:
      return "step time";
    case TopSort::kMemory:
      return "memory";
    case TopSort::kCpu:
      return "CPU";
    case TopSort::kPower:
      return "GPU power";
    case TopSort::kRank:
      break;
  }
  return "rank";
}

// Sorts ranks or nodes by the largest value among their ranks. Items without a value are last.
template <class T, class RanksOf>
void SortBy(std::vector<T>& items, const JobModel& model, TopSort sort, RanksOf ranks_of) {
  if (sort == TopSort::kRank) return;
  constexpr double kUnknown = -1e300;
  std::map<T, double> values;
  for (const T& item : items) {
    double value = kUnknown;
    for (const uint32_t rank : ranks_of(item))
      value = std::max(
          value, SortValue(FiguresOf(model, model.ranks().at(rank)), sort).value_or(kUnknown));
    values[item] = value;
  }
  std::ranges::stable_sort(items, std::greater(), [&](const T& item) { return values[item]; });
}

std::string RankLabel(const ModelRank& rank) {
  return "rank " + std::to_string(rank.rank) + (rank.ended ? " (" + rank.end + ")" : "");
}

std::string NodeState(const ModelNode& node) {
  switch (node.state) {
    case ModelNode::State::kConnecting:
      return "  connecting";
    case ModelNode::State::kLost:
      return "  no connection";
    case ModelNode::State::kDone:
      return "  ended";
    case ModelNode::State::kConnected:
      break;
  }
  return "";
}

class RowMaker {
 public:
  RowMaker(const JobModel& model, const TopView& view, Clock::time_point now)
      : model_(model), view_(view) {
    for (const auto& [number, rank] : model.ranks()) by_node_[rank.node].push_back(number);
    for (const Outlier& outlier : FindOutliers(model, now)) {
      if (outlier.rank) ranks_out_.insert(*outlier.rank);
      nodes_out_.insert(outlier.node);
    }
  }

  std::vector<TopRow> Make() {
    std::vector<size_t> listed, alike;
    for (size_t node = 0; node < model_.nodes().size(); ++node) {
      const bool alone = model_.nodes().size() <= kMostListedNodes || view_.all_nodes ||
                         nodes_out_.contains(node) || view_.open_nodes.contains(node);
      (alone ? listed : alike).push_back(node);
    }
    SortBy(listed, model_, view_.sort, [&](size_t node) { return RanksOfNode(by_node_, node); });
    for (const size_t node : listed) AddNode(node);
    if (!alike.empty()) AddAlike(alike);
    return std::move(rows_);
  }

 private:
  void AddNode(size_t node) {
    std::vector<uint32_t> plain, single;
    for (const uint32_t rank : RanksOfNode(by_node_, node)) {
      const bool alone = ranks_out_.contains(rank) || view_.open_nodes.contains(node);
      (alone ? single : plain).push_back(rank);
    }
    const ModelNode& known = model_.nodes()[node];
    TopRow row;
    row.label = known.name + NodeState(known);
    row.ranks = RanksOfNode(by_node_, node);
    row.node = node;
    row.is_node = true;
    row.stands_out = nodes_out_.contains(node);
    const bool is_one_row = single.empty() && !plain.empty();
    if (is_one_row) row.label += "  " + RankRangesText(plain, kRangeBytes);
    rows_.push_back(std::move(row));
    if (is_one_row) return;
    SortBy(single, model_, view_.sort, [](uint32_t rank) { return std::vector{rank}; });
    for (const uint32_t rank : single) {
      rows_.push_back({"  " + RankLabel(model_.ranks().at(rank)),
                       {rank},
                       node,
                       false,
                       ranks_out_.contains(rank)});
    }
    if (!plain.empty())
      rows_.push_back({"  " + RankRangesText(plain, kRangeBytes), plain, node, false, false});
  }

  void AddAlike(const std::vector<size_t>& nodes) {
    TopRow row;
    row.is_node = true;
    if (nodes.size() == 1) row.node = nodes.front();
    for (const size_t node : nodes) {
      const std::vector<uint32_t> ranks = RanksOfNode(by_node_, node);
      row.ranks.insert(row.ranks.end(), ranks.begin(), ranks.end());
    }
    std::ranges::sort(row.ranks);
    row.label = Count(nodes.size(), "node");
    rows_.push_back(std::move(row));
  }

  const JobModel& model_;
  const TopView& view_;
  std::map<size_t, std::vector<uint32_t>> by_node_;
  std::set<uint32_t> ranks_out_;
  std::set<size_t> nodes_out_;
  std::vector<TopRow> rows_;
};

TopLine TableHeading(const std::vector<const Column*>& chosen, size_t label_width, size_t columns,
                     TopSort sort) {
  std::string text =
      PadRight(sort == TopSort::kRank ? "  node, ranks" : std::string("  by ") + SortText(sort),
               label_width);
  for (const Column* column : chosen) text += " " + PadLeft(column->heading, column->width);
  return {{PadRight(Fit(text, columns), columns - 1), TopStyle::kHeading}};
}

TopLine TableLine(const TopRow& row, const Figures& figures,
                  const std::vector<const Column*>& chosen, size_t label_width, size_t columns,
                  bool is_chosen) {
  std::string text =
      PadRight(Fit((row.stands_out ? "! " : "  ") + row.label, label_width + 1), label_width);
  for (const Column* column : chosen) {
    const std::optional<double> value = figures.Median(row.ranks, *column);
    text += " " + PadLeft(value ? column->text(*value) : "-", column->width);
  }
  const TopStyle style = is_chosen        ? TopStyle::kChosen
                         : row.stands_out ? TopStyle::kWarning
                         : row.is_node    ? TopStyle::kBold
                                          : TopStyle::kPlain;
  text = Fit(text, columns);
  return {{is_chosen ? PadRight(text, columns - 1) : text, style}};
}

std::vector<std::string> OutlierLines(const JobModel& model, Clock::time_point now, size_t most) {
  std::vector<std::string> lines;
  const std::vector<Outlier> outliers = FindOutliers(model, now);
  for (size_t i = 0; i < outliers.size() && i < most; ++i) {
    const Outlier& outlier = outliers[i];
    const std::string& node = model.nodes()[outlier.node].name;
    if (i + 1 == most && outliers.size() > most) {
      lines.push_back("! and " + std::to_string(outliers.size() - i) + " more");
      break;
    }
    const bool is_named = outlier.why.starts_with(node + ":");
    lines.push_back(outlier.rank ? "! rank " + std::to_string(*outlier.rank) + " (" + node +
                                       "): " + outlier.why
                    : is_named ? "! " + outlier.why
                               : "! " + node + ": " + outlier.why);
  }
  return lines;
}

// Returns the last lines of the ranks that printed most recently, the newest line last.
std::vector<std::string> LastLines(const JobModel& model, const TopRow* chosen, size_t most) {
  std::vector<const ModelRank*> ranks;
  for (const auto& [number, rank] : model.ranks()) {
    const bool wanted = chosen == nullptr || std::ranges::binary_search(chosen->ranks, number);
    if (wanted && !rank.sample.last_line().empty()) ranks.push_back(&rank);
  }
  std::ranges::stable_sort(ranks, std::greater(),
                           [](const ModelRank* rank) { return rank->printed_at; });
  if (ranks.size() > most) ranks.resize(most);
  std::vector<std::string> lines;
  for (const ModelRank* rank : ranks)
    lines.insert(lines.begin(),
                 "rank " + std::to_string(rank->rank) + ": " + rank->sample.last_line());
  return lines;
}

// Assembles a screen from the top. Lines at the bottom are reserved.
class Page {
 public:
  Page(size_t rows, size_t columns) : rows_(rows), columns_(std::max<size_t>(columns, 2)) {}
  void Add(TopLine line) {
    if (lines_.size() < rows_) lines_.push_back(std::move(line));
  }
  void Add(const std::string& text, TopStyle style = TopStyle::kPlain) {
    Add(TopLine{{Fit(text, columns_), style}});
  }
  size_t left() const { return rows_ - lines_.size(); }
  void FillTo(size_t left_rows) {
    while (left() > left_rows) lines_.emplace_back();
  }
  std::vector<TopLine> Take() { return std::move(lines_); }
  size_t columns() const { return columns_; }

 private:
  const size_t rows_;
  const size_t columns_;
  std::vector<TopLine> lines_;
};

void AddBottom(const TopView& view, const JobModel& model, Page& page) {
  if (view.asks_to_stop) {
    page.Add(
        "Stop the job on " + Count(model.nodes().size(), "node") + "? y: stop  any other key: no",
        TopStyle::kWarning);
  } else if (!view.message.empty()) {
    page.Add(view.message, TopStyle::kBold);
  } else {
    page.Add(view.mode == TopView::Mode::kTable
                 ? kKeys
                 : "q or Esc: back to the table  arrows, Page Up, Page Down: scroll",
             TopStyle::kHeading);
  }
}

void AddHelp(Page& page) {
  for (const char* line :
       {"Keys", "  up, down, Page Up, Page Down   choose a row",
        "  Enter                          list the ranks of a node one by one, or all nodes",
        "  s   stacks of the ranks of the row, read without stopping them",
        "  l   output of the first rank of the row",
        "  o   sort by rank, step, step time, memory, CPU, GPU power",
        "  x   stop the job, after a question", "  q   leave; the job continues", "",
        "Each row has the medians of its ranks. A row with ! stands out.",
        "cpu 100% is one core. wait is the share of a step spent waiting for other ranks.",
        "net is TCP between ranks (not InfiniBand), disk what storage read and wrote.",
        "A GPU that draws little power while the job stalls does not take part in it."})
    page.Add(line);
}

void AddText(const TopView& view, Page& page) {
  page.Add(view.title, TopStyle::kBold);
  for (size_t i = view.text_at; i < view.text.size() && page.left() > 1; ++i)
    page.Add(view.text[i]);
}

void AddTable(const TopView& view, const Figures& figures, const std::vector<TopRow>& rows,
              size_t room, Page& page) {
  const std::vector<const Column*> chosen = ChooseColumns(figures, page.columns());
  const size_t label_width = LabelWidth(chosen, page.columns());
  page.Add(TableHeading(chosen, label_width, page.columns(), view.sort));
  if (room < 2) return;
  const size_t cursor = std::min(view.cursor, rows.empty() ? 0 : rows.size() - 1);
  const size_t visible = room - 1;
  const size_t first = cursor < visible ? 0 : cursor + 1 - visible;
  for (size_t i = first; i < rows.size() && i < first + visible; ++i) {
    page.Add(TableLine(rows[i], figures, chosen, label_width, page.columns(), i == cursor));
  }
}

}  // namespace

std::vector<TopRow> TableRows(const JobModel& model, const TopView& view, Clock::time_point now) {
  return RowMaker(model, view, now).Make();
}

TopScreen Draw(const JobModel& model, const TopJob& job, const TopView& view, const TopTime& time,
               size_t rows, size_t columns) {
  TopScreen screen;
  screen.rows = TableRows(model, view, time.now);
  Page page(rows, columns);
  if (view.mode == TopView::Mode::kHelp) {
    AddHelp(page);
  } else if (view.mode == TopView::Mode::kText) {
    AddText(view, page);
  } else {
    const Figures figures(model);
    const std::vector<std::string> head = JobLines(model, job, time, figures);
    for (size_t i = 0; i < head.size(); ++i)
      page.Add(head[i], i == 0 ? TopStyle::kBold : TopStyle::kPlain);
    if (!model.notice().empty()) page.Add(model.notice(), TopStyle::kWarning);
    for (const std::string& line : OutlierLines(model, time.now, std::max<size_t>(1, rows / 5)))
      page.Add(line, TopStyle::kWarning);
    const TopRow* const chosen =
        screen.rows.empty() ? nullptr : &screen.rows[std::min(view.cursor, screen.rows.size() - 1)];
    const std::vector<std::string> last = rows < kRowsForLastLines
                                              ? std::vector<std::string>()
                                              : LastLines(model, chosen, kMostLastLines);
    const size_t below = 1 + (last.empty() ? 0 : last.size() + 1);
    if (page.left() > below) AddTable(view, figures, screen.rows, page.left() - below, page);
    if (!last.empty()) {
      page.FillTo(below);
      page.Add("last lines of the row's ranks", TopStyle::kBold);
      for (const std::string& line : last) page.Add(line);
    }
  }
  if (page.left() > 0) {
    page.FillTo(1);
    AddBottom(view, model, page);
  }
  screen.lines = page.Take();
  return screen;
}

std::string TopText(const JobModel& model, const TopJob& job, const TopTime& time, size_t columns) {
  const Figures figures(model);
  std::string text;
  const auto add = [&](const std::string& line) { text += line + "\n"; };
  for (const std::string& line : JobLines(model, job, time, figures)) add(Fit(line, columns));
  if (!model.notice().empty()) add(Fit(model.notice(), columns));
  for (const std::string& line : OutlierLines(model, time.now, SIZE_MAX)) add(Fit(line, columns));
  const std::vector<const Column*> chosen = ChooseColumns(figures, columns);
  const size_t label_width = LabelWidth(chosen, columns);
  const auto add_line = [&](const TopLine& line) {
    std::string joined;
    for (const TopSpan& span : line) joined += span.text;
    joined.erase(joined.find_last_not_of(' ') + 1);
    add(joined);
  };
  add_line(TableHeading(chosen, label_width, columns, TopSort::kRank));
  for (const TopRow& row : TableRows(model, {}, time.now))
    add_line(TableLine(row, figures, chosen, label_width, columns, false));
  for (const std::string& line : LastLines(model, nullptr, kMostLastLines)) add(Fit(line, columns));
  return text;
}

}  // namespace dslaunch
