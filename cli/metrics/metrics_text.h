// Writes metrics in the text formats that Prometheus, node_exporter and OpenMetrics collectors
// read. Performs no I/O.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace dslaunch {

// The text format. The two formats differ in the names of counters' families, and in the last line.
// node_exporter's textfile collector reads only kPrometheus.
enum class MetricsFormat { kOpenMetrics, kPrometheus };

// Returns "name=\"value\",..." without braces. Values are escaped: bytes that are not UTF-8 are
// replaced, and control characters become spaces. Pairs with an empty value are left out.
std::string LabelsText(std::initializer_list<std::pair<std::string_view, std::string_view>> labels);

// Writes families of metrics one after the other. Names, units and help are constants of the
// program.
class MetricsWriter {
 public:
  explicit MetricsWriter(MetricsFormat format) : format_(format) {}

  enum class Type { kGauge, kCounter };
  // A family of metrics. The `name` of a counter has no "_total". `unit` is a suffix of `name`;
  // empty if there is no unit.
  struct Family {
    const char* name;
    Type type;
    const char* unit;
    const char* help;  // one sentence, without backslashes and line breaks
  };
  // Begins a family, which is written with its first sample.
  void Begin(const Family& family);
  // Adds a sample. `labels` and `more` are results of LabelsText; either may be empty.
  void Add(std::string_view labels, std::string_view more, double value);
  void Add(std::string_view labels, double value) { Add(labels, "", value); }

  // Returns the complete text.
  std::string Finish();

 private:
  const MetricsFormat format_;
  std::string text_;
  std::string sample_name_;
  const Family* family_ = nullptr;
  bool has_sample_ = false;  // whether the current family has a sample
};

}  // namespace dslaunch
