// Models the cost of exchanges between ranks: measured, fitted and predicted. Pure.
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
  kSendRecv,         // each rank sends to the next rank
  kParameterServer,  // every rank sends its values to rank 0, which sends the sum back
};

const char* Name(MeasuredExchange exchange);  // returns a name such as "all_reduce"
const std::vector<MeasuredExchange>& AllExchanges();

struct Measurement {
  MeasuredExchange exchange = MeasuredExchange::kAllReduce;
  int ranks = 0;
  int64_t bytes = 0;   // size of one rank's buffer; for an all-gather, size of the whole result
  double time_s = 0;   // duration of one exchange on the slowest rank
  int64_t errors = 0;  // number of wrong values on all ranks

  double algorithm_bandwidth() const;  // `bytes` per second
  // Returns the traffic of the slowest link in bytes per second, as defined by nccl-tests
  // (doc/PERFORMANCE.md there): the algorithm bandwidth times 2(n-1)/n for an all-reduce, (n-1)/n
  // for a reduce-scatter, an all-gather and an all-to-all, and 1 for other exchanges.
  double bus_bandwidth() const;
};

// The cost of an exchange as a linear function, time = alpha + beta * bytes (Hockney's model).
struct LinearCost {
  double alpha_s = 0;
  double beta_s_per_byte = 0;
  double worst_relative_error = 0;  // largest relative error over the fitted measurements
};

// Fits a cost by least squares of the relative errors, so that short exchanges have the same weight
// as long ones. Neither parameter of the result is negative. Precondition: all measurements have
// the same exchange and number of ranks, and there are two or more sizes.
LinearCost FitCost(const std::vector<Measurement>& measurements);

// Returns the seconds in which a ring combines the gradients of `ranks` ranks, of `bytes` each,
// over links of cost `link`. A ring (Patarasuk and Yuan, 2009) of n ranks takes 2(n-1) steps of
// bytes/n.
double RingSeconds(int ranks, double bytes, const LinearCost& link);
// Returns the seconds in which a server with one link combines the gradients: it receives `bytes`
// from each rank, then sends as much to each.
double ParameterServerSeconds(int ranks, double bytes, const LinearCost& link);

// Returns a table in the format of nccl-tests, followed by a line for each fit.
std::string MeasurementTable(const std::vector<Measurement>& measurements);
std::string MeasurementJson(const std::vector<Measurement>& measurements);
// Returns an SVG plot of bus bandwidth over size, both logarithmic, with a line for each exchange
// and number of ranks.
std::string MeasurementPlot(const std::vector<Measurement>& measurements);

// Returns a table of the times of a ring and a parameter server for `parameters` fp32 values, for n
// = 2, 4 ... 64 ranks.
std::string PredictionTable(double parameters, const LinearCost& link);

}  // namespace dslaunch
