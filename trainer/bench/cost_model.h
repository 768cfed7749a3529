// The cost of exchanges between ranks: measured, fitted and predicted. Pure.
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
  kParameterServer,  // every rank sends its values to rank 0, which adds them and sends the sum
                     // back
};

const char* Name(MeasuredExchange exchange);  // "all_reduce"
const std::vector<MeasuredExchange>& AllExchanges();

struct Measurement {
  MeasuredExchange exchange = MeasuredExchange::kAllReduce;
  int ranks = 0;
  int64_t bytes = 0;   // size of one rank's buffer; for an all-gather, of the whole result
  double time_s = 0;   // time of one exchange, on the slowest rank
  int64_t errors = 0;  // number of wrong values on all ranks

  double algorithm_bandwidth() const;  // bytes per second
  // Traffic of the slowest link as defined by nccl-tests (doc/PERFORMANCE.md there): the algorithm
  // bandwidth times 2(n-1)/n for an all-reduce, (n-1)/n for a reduce-scatter, an all-gather and an
  // all-to-all, 1 for the others.
  double bus_bandwidth() const;
};

// time = alpha + beta * bytes (Hockney's model).
struct LinearCost {
  double alpha_s = 0;
  double beta_s_per_byte = 0;
  double worst_relative_error = 0;  // maximum over the fitted measurements
};

// Fits by least squares of the relative errors, so that short exchanges have the same weight as
// long ones. Neither parameter is negative. Precondition: all measurements are of one kind of
// exchange and number of ranks, with two or more sizes.
LinearCost FitCost(const std::vector<Measurement>& measurements);

// Returns the seconds to combine the gradients of n ranks, of `bytes` each, over links of `link`. A
// ring (Patarasuk and Yuan, 2009) takes 2(n-1) steps of bytes/n.
double RingSeconds(int ranks, double bytes, const LinearCost& link);
// Returns the seconds for one server with one link: it receives n times `bytes`, then sends as
// much.
double ParameterServerSeconds(int ranks, double bytes, const LinearCost& link);

// Returns a table in the format of nccl-tests, followed by a line for each fit.
std::string MeasurementTable(const std::vector<Measurement>& measurements);
std::string MeasurementJson(const std::vector<Measurement>& measurements);
// Returns an SVG plot of bus bandwidth over size, both logarithmic, with a line for each exchange
// and number of ranks.
std::string MeasurementPlot(const std::vector<Measurement>& measurements);

// Returns a table for n = 2, 4 ... 64 of the times of a ring and a parameter server for
// `parameters` fp32 values.
std::string PredictionTable(double parameters, const LinearCost& link);

}  // namespace dslaunch
