// What an exchange costs: measured, fitted, predicted. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dslaunch {

enum class MeasuredExchange {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kAllToAll,
  kSendRecv,         // each rank to the next one
  kParameterServer,  // every rank's values to rank 0, which adds them up and sends each the sum
};

const char* Name(MeasuredExchange exchange);  // "all_reduce"
const std::vector<MeasuredExchange>& AllExchanges();

struct Measurement {
  MeasuredExchange exchange = MeasuredExchange::kAllReduce;
  int ranks = 0;
  int64_t bytes = 0;   // of one rank's buffer; all ranks' together of an all-gather's result
  double time_s = 0;   // of one exchange, on the slowest rank
  int64_t errors = 0;  // values of all ranks that are wrong

  double algorithm_bandwidth() const;  // bytes / s
  // What the slowest link carries, as nccl-tests has it (doc/PERFORMANCE.md there): the algorithm
  // bandwidth times 2(n-1)/n for an all-reduce, (n-1)/n for a reduce-scatter, an all-gather and an
  // all-to-all, 1 for the others.
  double bus_bandwidth() const;
};

// time = alpha + beta * bytes (Hockney's model).
struct LinearCost {
  double alpha_s = 0;
  double beta_s_per_byte = 0;
  double worst_relative_error = 0;  // of the measurements it was fitted to
};

// Least squares of the relative errors, so that short exchanges count as long ones do. Of one kind
// of exchange and number of ranks, with two or more sizes. Neither number is negative.
LinearCost FitCost(const std::vector<Measurement>& measurements);

// Seconds to make the gradients of n ranks one, of `bytes` each, over links of `link`.
// Ring (Patarasuk and Yuan, 2009): 2(n-1) steps of bytes/n.
double RingSeconds(int ranks, double bytes, const LinearCost& link);
// One server with one link: it receives n times `bytes`, then sends as much.
double ParameterServerSeconds(int ranks, double bytes, const LinearCost& link);

// nccl-tests' table, and after it a line for each fit.
std::string MeasurementTable(const std::vector<Measurement>& measurements);
std::string MeasurementJson(const std::vector<Measurement>& measurements);
// Bus bandwidth over size, both logarithmic, a line for each exchange and number of ranks.
std::string MeasurementPlot(const std::vector<Measurement>& measurements);

// For n = 2, 4 ... 64: what a ring and a parameter server need for `parameters` fp32 values.
std::string PredictionTable(double parameters, const LinearCost& link);

}  // namespace dslaunch
