// Fits a cost model to measurements of exchanges between ranks, and predicts their durations. Pure
// functions.
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
  kSendRecv,         // sends from each rank to the next rank
  kParameterServer,  // sends every rank's values to rank 0, and the sum back
};

const char* Name(MeasuredExchange exchange);  // returns a name such as "all_reduce"
const std::vector<MeasuredExchange>& AllExchanges();

struct Measurement {
  MeasuredExchange exchange = MeasuredExchange::kAllReduce;
  int ranks = 0;
  // Bytes of one rank's buffer; for an all-gather, bytes of the whole result.
  int64_t bytes = 0;
  double time_s = 0;   // duration of one exchange on the slowest rank
  int64_t errors = 0;  // number of wrong values on all ranks

  double algorithm_bandwidth() const;  // `bytes` per second
  // Returns the traffic of the slowest link in bytes per second, as nccl-tests defines it in its
  // doc/PERFORMANCE.md: the algorithm bandwidth times 2(n-1)/n for an all-reduce, (n-1)/n for a
  // reduce-scatter, an all-gather and an all-to-all, and 1 for other exchanges.
  double bus_bandwidth() const;
};

// The cost of an exchange as a linear function, time = alpha + beta * bytes (Hockney's model).
struct LinearCost {
  double alpha_s = 0;
  double beta_s_per_byte = 0;
  double worst_relative_error = 0;  // largest relative error over the fitted measurements
};

// Fits a cost by least squares of the relative errors, so that short and long exchanges have the
// same weight. Neither parameter of the result is negative. Precondition: all measurements have the
// same exchange and number of ranks, and at least two different sizes.
LinearCost FitCost(const std::vector<Measurement>& measurements);

// Returns the seconds in which a ring all-reduce combines the gradients of `ranks` ranks, `bytes`
// each, over links of cost `link`. A ring of n ranks (Patarasuk and Yuan, 2009) takes 2(n-1) steps
// of bytes/n.
double RingSeconds(int ranks, double bytes, const LinearCost& link);
// Returns the seconds in which a server with one link combines the gradients: it receives `bytes`
// from each rank, then sends `bytes` to each rank.
double ParameterServerSeconds(int ranks, double bytes, const LinearCost& link);

// Returns a table in the format of nccl-tests, followed by a line for each fit.
std::string MeasurementTable(const std::vector<Measurement>& measurements);
std::string MeasurementJson(const std::vector<Measurement>& measurements);
// Returns an SVG plot of bus bandwidth over size, on logarithmic axes, with a line for each
// exchange and number of ranks.
std::string MeasurementPlot(const std::vector<Measurement>& measurements);

// Returns a table of the seconds that a ring and a parameter server take for `parameters` fp32
// values and n = 2, 4 ... 64 ranks.
std::string PredictionTable(double parameters, const LinearCost& link);

}  // namespace dslaunch
