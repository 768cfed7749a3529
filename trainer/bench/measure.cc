#include "trainer/bench/measure.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <fstream>
#include <map>
#include <optional>

#include "trainer/base/log.h"
#include "trainer/base/train_error.h"

namespace dslaunch {
namespace {

using std::chrono::steady_clock;

// Returns the values that `rank` contributes. Their sums over the ranks are exact in fp32.
at::Tensor ValuesOf(int rank, int64_t elements) {
  return at::arange(elements, at::kFloat).remainder_(7).add_(rank + 1);
}

int64_t Wrong(const at::Tensor& result, const at::Tensor& expected) {
  return result.ne(expected).sum().item<int64_t>();
}

// Runs one exchange repeatedly with the same buffers.
class Trial {
 public:
  Trial(const ProcessGroup& group, MeasuredExchange exchange, int64_t bytes)
      : group_(group), exchange_(exchange), n_(group.world_size()) {
    const int64_t unit = 4 * n_;
    // The number of elements is rounded to a multiple of the number of ranks.
    elements_ = std::max<int64_t>(bytes / unit, 1) * n_;
    own_ = ValuesOf(group.rank(), elements_);
    buffer_ = own_.clone();
  }

  int64_t bytes() const { return elements_ * 4; }

  void Run() {
    const int rank = group_.rank();
    switch (exchange_) {
      case MeasuredExchange::kAllReduce:
        group_.AllReduce(buffer_);
        return;
      case MeasuredExchange::kReduceScatter:
        result_ = group_.ReduceScatter(own_.view({n_, elements_ / n_}));
        return;
      case MeasuredExchange::kAllGather:
        result_ = group_.AllGather(own_.narrow(0, 0, elements_ / n_));
        return;
      case MeasuredExchange::kBroadcast:
        group_.Broadcast(buffer_, 0);
        return;
      case MeasuredExchange::kAllToAll: {
        if (!result_.defined()) result_ = at::empty_like(own_);
        std::vector<int64_t> equal_parts;
        group_.c10d_group()->alltoall_base(result_, own_, equal_parts, equal_parts)->wait();
        return;
      }
      case MeasuredExchange::kSendRecv: {
        std::vector<at::Tensor> sent = {own_}, received = {buffer_};
        const auto work = group_.c10d_group()->send(sent, (rank + 1) % static_cast<int>(n_), 0);
        group_.c10d_group()
            ->recv(received, (rank + static_cast<int>(n_) - 1) % static_cast<int>(n_), 0)
            ->wait();
        work->wait();
        return;
      }
      case MeasuredExchange::kParameterServer:
        if (rank != 0) {
          group_.Send(own_, 0);
          group_.Recv(buffer_, 0);
          return;
        }
        buffer_.copy_(own_);
        if (!result_.defined()) result_ = at::empty_like(own_);
        for (int from = 1; from < n_; ++from) {
          group_.Recv(result_, from);
          buffer_.add_(result_);
        }
        for (int to = 1; to < n_; ++to) group_.Send(buffer_, to);
        return;
    }
  }

  // Runs the exchange once, and returns the number of wrong values on this rank.
  int64_t Errors() {
    buffer_.copy_(own_);
    Run();
    const int rank = group_.rank();
    at::Tensor sum = at::zeros({elements_});
    for (int from = 0; from < n_; ++from) sum += ValuesOf(from, elements_);
    const int64_t part = elements_ / n_;
    switch (exchange_) {
      case MeasuredExchange::kAllReduce:
      case MeasuredExchange::kParameterServer:
        return Wrong(buffer_, sum);
      case MeasuredExchange::kReduceScatter:
        return Wrong(result_, sum.narrow(0, rank * part, part));
      case MeasuredExchange::kBroadcast:
        return Wrong(buffer_, ValuesOf(0, elements_));
      case MeasuredExchange::kSendRecv:
        return Wrong(buffer_,
                     ValuesOf((rank + static_cast<int>(n_) - 1) % static_cast<int>(n_), elements_));
      case MeasuredExchange::kAllGather:
      case MeasuredExchange::kAllToAll:
        break;
    }
    int64_t wrong = 0;
    for (int from = 0; from < n_; ++from) {
      const int64_t start = exchange_ == MeasuredExchange::kAllGather ? 0 : rank * part;
      wrong +=
          Wrong(result_.view({n_, part})[from], ValuesOf(from, elements_).narrow(0, start, part));
    }
    return wrong;
  }

 private:
  const ProcessGroup& group_;
  const MeasuredExchange exchange_;
  const int64_t n_;
  int64_t elements_ = 0;
  at::Tensor own_, buffer_, result_;
};

Measurement Measure(const ProcessGroup& group, MeasuredExchange exchange, int64_t bytes,
                    const MeasureOptions& options) {
  Trial trial(group, exchange, bytes);
  for (int i = 0; i < options.warmup; ++i) trial.Run();
  group.Barrier();
  const steady_clock::time_point begin = steady_clock::now();
  for (int i = 0; i < options.iterations; ++i) trial.Run();
  const double own_s = std::chrono::duration<double>(steady_clock::now() - begin).count();
  at::Tensor slowest = at::full({1}, own_s / options.iterations, at::kDouble);
  at::Tensor wrong = at::full({1}, trial.Errors(), at::kLong);
  group.AllReduce(slowest, ReduceOp::kMax);
  group.AllReduce(wrong);
  return {exchange, group.world_size(), trial.bytes(), slowest.item<double>(),
          wrong.item<int64_t>()};
}

[[noreturn]] void Refuse(const std::string& problem) {
  throw TrainError(ExitCode::kUsage, "bench comm: " + problem + "; see dslaunch bench comm --help");
}

double ReadPositive(const std::string& option, const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value > 0 && value < 1e15)) {
    Refuse(option + " " + text + " must be a number above 0");
  }
  return value;
}

void WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  if (!(file << text << std::flush)) {
    throw TrainError(ExitCode::kIo, "bench comm: cannot write " + path);
  }
}

std::vector<std::string> Parts(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

MeasuredExchange ReadExchange(const std::string& text) {
  std::string names;
  for (const MeasuredExchange exchange : AllExchanges()) {
    if (text == Name(exchange)) return exchange;
    names += (names.empty() ? "" : ", ") + std::string(Name(exchange));
  }
  Refuse("there is no exchange " + text + "; there are " + names);
}

// Returns the numbers of ranks to measure. Without `text`, they are the powers of two below
// `world_size`, and `world_size` itself.
std::vector<int> ReadRanks(const std::optional<std::string>& text, int world_size) {
  std::vector<int> sizes;
  if (!text) {
    for (int ranks = 2; ranks < world_size; ranks *= 2) sizes.push_back(ranks);
    sizes.push_back(world_size);
    return sizes;
  }
  for (const std::string& part : Parts(*text)) {
    const double ranks = ReadPositive("--ranks", part);
    if (ranks < 2 || ranks > world_size) {
      Refuse("--ranks " + part + ": the job has " + std::to_string(world_size) +
             " ranks, and an exchange needs two");
    }
    sizes.push_back(static_cast<int>(ranks));
  }
  return sizes;
}

// Fits the cost of one link from the send_recv measurements between `ranks` ranks. `bandwidth`, in
// GB/s, replaces the measured bandwidth.
LinearCost FitLinkCost(const std::vector<Measurement>& measurements, int ranks,
                       const std::optional<std::string>& bandwidth) {
  std::vector<Measurement> of_links;
  for (const Measurement& one : measurements) {
    if (one.exchange == MeasuredExchange::kSendRecv && one.ranks == ranks) {
      of_links.push_back(one);
    }
  }
  if (of_links.size() < 2) Refuse("--predict needs send_recv in two sizes (--exchanges)");
  LinearCost link = FitCost(of_links);
  if (bandwidth) link.beta_s_per_byte = 1 / (1e9 * ReadPositive("--bandwidth", *bandwidth));
  return link;
}

}  // namespace

std::vector<Measurement> MeasureExchanges(const ProcessGroup& group, const MeasureOptions& options,
                                          const std::function<void(const Measurement&)>& report) {
  std::vector<Measurement> measurements;
  for (const int ranks : options.ranks) {
    std::optional<ProcessGroup> part;
    if (ranks < group.world_size() && group.rank() < ranks) {
      std::vector<int> members;
      for (int rank = 0; rank < ranks; ++rank) members.push_back(rank);
      part.emplace(group.Subgroup(members, "bench." + std::to_string(ranks)));
    }
    const ProcessGroup& measured = part ? *part : group;
    if (group.rank() < ranks) {
      for (const MeasuredExchange exchange : options.exchanges) {
        for (int64_t bytes = options.min_bytes; bytes <= options.max_bytes;
             bytes *= options.factor) {
          const Measurement one = Measure(measured, exchange, bytes, options);
          if (group.rank() != 0) continue;
          report(one);
          measurements.push_back(one);
        }
      }
    }
    group.Barrier();
  }
  return measurements;
}

void RunBenchComm(const ProcessGroup& group, const std::vector<std::string>& words) {
  if (words.size() % 2 != 0) Refuse("each option has a value");
  std::map<std::string, std::string> values;
  for (size_t i = 0; i < words.size(); i += 2) values[words[i]] = words[i + 1];
  const auto take = [&](const char* name) -> std::optional<std::string> {
    const auto found = values.extract(name);
    return found ? std::optional(found.mapped()) : std::nullopt;
  };
  const auto whole = [&](const char* name, int64_t& value) {
    if (const auto text = take(name)) value = static_cast<int64_t>(ReadPositive(name, *text));
  };
  MeasureOptions options;
  int64_t iterations = options.iterations;
  whole("--min_bytes", options.min_bytes);
  whole("--max_bytes", options.max_bytes);
  whole("--iterations", iterations);
  options.iterations = static_cast<int>(std::min<int64_t>(iterations, 1'000'000));
  if (options.min_bytes > options.max_bytes) Refuse("--min_bytes is more than --max_bytes");
  if (const auto text = take("--exchanges")) {
    for (const std::string& name : Parts(*text)) options.exchanges.push_back(ReadExchange(name));
  } else {
    options.exchanges = AllExchanges();
  }
  options.ranks = ReadRanks(take("--ranks"), group.world_size());
  const auto json_file = take("--json_file"), svg_file = take("--svg_file");
  const auto predict = take("--predict"), bandwidth = take("--bandwidth");
  if (!values.empty()) Refuse("there is no option " + values.begin()->first);
  if (group.world_size() < 2) {
    Refuse("one rank has no other to exchange with; ask for more (--num_gpus 2)");
  }
  const bool is_first = group.rank() == 0;
  const std::vector<Measurement> measurements =
      MeasureExchanges(group, options, [](const Measurement&) {});
  if (!is_first) return;
  PrintText(MeasurementTable(measurements));
  if (json_file) WriteFile(*json_file, MeasurementJson(measurements));
  if (svg_file) WriteFile(*svg_file, MeasurementPlot(measurements));
  if (!predict) return;
  const LinearCost link = FitLinkCost(measurements, options.ranks.back(), bandwidth);
  PrintText(PredictionTable(ReadPositive("--predict", *predict), link));
}

}  // namespace dslaunch
