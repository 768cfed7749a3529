// Horovod's elastic training (hvd.elastic), based on the restarts of dslaunch:
//
//   namespace hvd = dslaunch::horovod;
//   int64_t epoch = 0, batch = 0;
//   hvd::elastic::State state(model, *sgd, {{"epoch", &epoch}, {"batch", &batch}});
//   state.RegisterResetCallbacks({[&] { SetLearningRate(*sgd, 0.01 * hvd::Size()); }});
//   hvd::elastic::Run(state, [&](hvd::elastic::State& state) {
//     for (; epoch < kEpochs; ++epoch, batch = 0) {
//       while (batch < kBatches) {
//         TrainOn(batch++);
//         state.Commit();
//       }
//     }
//   });
//
// Differences from Horovod, whose processes survive a reset:
// - A reset starts new processes on all nodes, as the next attempt of the job: after a failure, if
//   --max_restarts allows it, and for a joining node with --on_join now. All of main() runs again,
//   up to Run, which begins from the newest commit. So Commit also writes files.
// - The launcher requests a reset by SIGTERM, and also sends it if the job is to end (dslaunch
//   stop, Ctrl-C, --time_limit), so HostsUpdatedInterrupt means either. The program has until
//   --grace for its next Commit or CheckHostUpdates.
// - A failed exchange (Horovod's HorovodInternalError) is a TrainError kUnavailable or kTimedOut,
//   which must leave Run and end the process, so that the launcher starts the next attempt.
//
// Main in dslaunch/program.h converts exceptions from Run to the exit codes that the launcher
// expects. Call these functions between Init and Shutdown, on the thread that called Init. Errors
// are TrainError: besides those of horovod.h, kUsage for a wrong call, kIo if a commit cannot be
// written, kBadInput if a commit belongs to another model.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "dslaunch/error.h"
#include "dslaunch/horovod.h"

namespace dslaunch::horovod::elastic {

// Thrown on all ranks at the same call, after the commit if it comes from Commit. Main ends the
// program with 85 and without a message.
class HostsUpdatedInterrupt : public TrainError {
 public:
  HostsUpdatedInterrupt();
};

struct ElasticSamplerOptions {
  bool shuffle = true;  // otherwise in the order of the data
  uint64_t seed = 0;
};

// Chooses the samples of an epoch for each rank. As a value of a State it knows, after a reset,
// which samples the commit has processed, and the ranks, however many there are then, divide the
// others:
//
//   hvd::elastic::ElasticSampler sampler(data.size());
//   hvd::elastic::State state(model, *sgd, {{"epoch", &epoch}, {"sampler", &sampler}});
//   hvd::elastic::Run(state, [&](hvd::elastic::State& state) {
//     while (epoch < kEpochs) {
//       for (int64_t batch = 0; batch < sampler.Batches(kBatch); ++batch) {
//         TrainOn(sampler.GetIndices(batch, kBatch));
//         sampler.RecordBatch(batch, kBatch);
//         state.Commit();
//       }
//       sampler.SetEpoch(++epoch);
//       state.Commit();
//     }
//   });
//
// Each sample occurs once per epoch, and every rank has the same number. If the remaining samples
// cannot be divided evenly, the first of them are repeated, at most Size() - 1. Use it between Init
// and Shutdown. Not thread-safe.
class ElasticSampler {
 public:
  // Samples 0 to `num_samples` - 1, at least one; starts in epoch 0. Arguments must be the same on
  // all ranks.
  explicit ElasticSampler(int64_t num_samples, const ElasticSamplerOptions& options = {});

  // Begins an epoch, whose order is derived from seed + epoch, with no sample processed. As in
  // Horovod, call it when an epoch ends; at its start, it would drop what was recorded before a
  // reset.
  void SetEpoch(int64_t epoch);
  int64_t epoch() const { return epoch_; }

  // Returns this rank's part of the samples that remained at SetEpoch, or when Run, Restore or Sync
  // loaded a commit. Recording samples does not change it.
  const std::vector<int64_t>& Indices() const { return indices_; }
  // Returns the number of batches of this size in the part; the last one may be smaller.
  int64_t Batches(int64_t batch_size) const {
    return (static_cast<int64_t>(indices_.size()) + batch_size - 1) / batch_size;
  }
  // Returns the samples of a batch, counted from 0.
  std::vector<int64_t> GetIndices(int64_t batch, int64_t batch_size) const;

  // Record samples as processed. A commit contains what all ranks have recorded until then. It
  // takes a byte for each of the `num_samples`, in the exchange between ranks and in the file.
  void RecordBatch(int64_t batch, int64_t batch_size);
  void RecordIndices(const std::vector<int64_t>& indices);

  // For checkpoints of the program: Processed returns a copy of the samples that this rank knows to
  // be processed, uint8 [num_samples], 0 if not processed. Load restores it and divides the others
  // again.
  at::Tensor Processed() const;
  void Load(int64_t epoch, const at::Tensor& processed);

 private:
  const int64_t num_samples_;
  const ElasticSamplerOptions options_;
  int64_t epoch_ = 0;
  at::Tensor processed_;
  std::vector<int64_t> indices_;
};

// A further committed value: a variable of the program, such as an epoch or a learning rate, or the
// processed samples.
struct NamedValue {
  std::string name;
  std::variant<int64_t*, double*, ElasticSampler*> value;  // borrowed
};

struct StateOptions {
  // The folder for commits, from whose newest one another job can begin too: on each node, or
  // shared by all; created if missing. Only one job may use it at a time. If empty, commits are in
  // the job's own folder on each node, for later attempts of this job; without a launcher, only in
  // memory.
  std::string folder = {};
};

// The state that Run restores after a reset: parameters and buffers, the optimizer's options and
// state, and the program's values. All ranks must have the same state when they commit, as in data
// parallel training; the records of a sampler are merged.
class State {
 public:
  // The model, the optimizer (supported by BroadcastOptimizerState) and the values must outlive it.
  // Values have unique names, the same on all ranks. From here on SIGTERM and SIGINT do not end the
  // process; see CheckHostUpdates.
  State(torch::nn::Module& model, torch::optim::Optimizer& optimizer,
        const std::vector<NamedValue>& values = {}, const StateOptions& options = {});
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Keeps a copy of the state in memory; the first rank of each node also writes it to a file,
  // which replaces the last one once it is completely on disk. Then calls CheckHostUpdates.
  // Collective. It costs a copy and a write of the state, so commit every few batches only.
  void Commit();
  // Throws HostsUpdatedInterrupt if any rank was asked to stop. Collective, with a small exchange:
  // call it more often than Commit, so that a joining node need not wait long.
  void CheckHostUpdates();
  // Restores the last commit or Sync on this rank only, so all ranks must call it. Throws kUsage if
  // there is none.
  void Restore();
  // Copies the state of the rank with the newest commit (the lowest of several) to all ranks, as a
  // commit of all. Collective. Run does it at the start.
  void Sync();
  // Callbacks are called in this order on all ranks at the start of a Run that begins from a
  // commit, before its Sync. They see the state of the commit, and the new Size().
  void RegisterResetCallbacks(std::vector<std::function<void()>> callbacks);

 private:
  friend void Run(State& state, const std::function<void(State&)>& fn);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Loads the newest commit of a node, calls the reset callbacks if there is one, Sync, and
// fn(state). Commits that are damaged or incomplete are not used; a line on stderr names the
// damaged ones. Returns when fn returns; throws what fn throws. Collective.
void Run(State& state, const std::function<void(State&)>& fn);

}  // namespace dslaunch::horovod::elastic
