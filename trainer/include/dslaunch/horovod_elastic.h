// Provides Horovod's elastic training (hvd.elastic), based on the restarts of dslaunch:
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
// - A reset starts new processes on all nodes as the next attempt of the job. It happens after a
//   failure, if --max_restarts allows it, and for a joining node with --on_join now. All of main()
//   runs again up to Run, which begins from the newest commit. Commit therefore also writes files.
// - The launcher requests a reset by SIGTERM. It also sends SIGTERM if the job is to end
//   (dslaunch stop, Ctrl-C, --time_limit), so HostsUpdatedInterrupt means a reset or the end. The
//   program must call Commit or CheckHostUpdates within --grace.
// - A failed exchange (Horovod's HorovodInternalError) is a TrainError kUnavailable or kTimedOut,
//   which must propagate out of Run and end the process, so that the launcher starts the next
//   attempt.
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

// Reports that the ranks were asked to stop. All ranks throw it in the same call; Commit throws it
// after the commit. Main then exits with 85 and prints no message.
class HostsUpdatedInterrupt : public TrainError {
 public:
  HostsUpdatedInterrupt();
};

struct ElasticSamplerOptions {
  bool shuffle = true;  // false to use the samples in the order of the data
  uint64_t seed = 0;
};

// Chooses the samples of an epoch for each rank. If it is a value of a State, a commit stores which
// samples were processed. After a reset the ranks, whose number may have changed, divide the
// remaining samples:
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
// Each sample occurs once per epoch, and every rank has the same number of samples. If the
// remaining samples cannot be divided evenly, up to Size() - 1 of the first are repeated. Use it
// between Init and Shutdown. Not thread-safe.
class ElasticSampler {
 public:
  // Divides the samples 0 to `num_samples` - 1, beginning with epoch 0. `num_samples` is at least
  // 1. Arguments must be the same on all ranks.
  explicit ElasticSampler(int64_t num_samples, const ElasticSamplerOptions& options = {});

  // Begins an epoch in which no sample is processed yet; its order is derived from seed + epoch. As
  // in Horovod, call it at the end of the previous epoch. A call at the start of an epoch would
  // drop the samples that were recorded before a reset.
  void SetEpoch(int64_t epoch);
  int64_t epoch() const { return epoch_; }

  // Returns this rank's part of the samples that remained at SetEpoch, or when Run, Restore or Sync
  // loaded a commit. Recording samples does not change the result.
  const std::vector<int64_t>& Indices() const { return indices_; }
  // Returns the number of batches of this size in Indices(); the last batch may be smaller.
  int64_t Batches(int64_t batch_size) const {
    return (static_cast<int64_t>(indices_.size()) + batch_size - 1) / batch_size;
  }
  // Returns the samples of batch `batch`, which counts from 0.
  std::vector<int64_t> GetIndices(int64_t batch, int64_t batch_size) const;

  // Records samples as processed. A commit contains the samples that any rank has recorded until
  // then. The record takes a byte per sample of the data, in the exchange between ranks and in the
  // file.
  void RecordBatch(int64_t batch, int64_t batch_size);
  void RecordIndices(const std::vector<int64_t>& indices);

  // Returns a copy of this rank's record of processed samples, for a program's own checkpoints:
  // uint8 [num_samples], 0 if not processed.
  at::Tensor Processed() const;
  // Restores a record that Processed returned, and divides the remaining samples of `epoch` again.
  // Throws kBadInput if `processed` has another dtype or size.
  void Load(int64_t epoch, const at::Tensor& processed);

 private:
  const int64_t num_samples_;
  const ElasticSamplerOptions options_;
  int64_t epoch_ = 0;
  at::Tensor processed_;
  std::vector<int64_t> indices_;
};

// A value that a State commits besides the model and the optimizer: a variable of the program, such
// as an epoch or a learning rate, or a sampler's processed samples.
struct NamedValue {
  std::string name;
  // Pointer to the value, which must outlive the State.
  std::variant<int64_t*, double*, ElasticSampler*> value;
};

struct StateOptions {
  // The folder for commits, local to each node or shared by all nodes; created if missing. Another
  // job can begin from its newest commit, but only one job may use the folder at a time. If empty,
  // commits are stored in the job's own folder on each node, for later attempts of this job;
  // without a launcher they are kept only in memory.
  std::string folder = {};
};

// The state that Run restores after a reset: parameters and buffers, the optimizer's options and
// state, and the program's values. All ranks must have the same state when they commit, as in data
// parallel training; the records of a sampler are merged.
class State {
 public:
  // Creates the state of `model`, `optimizer` and `values`, which must outlive this object.
  // BroadcastOptimizerState must support the optimizer. Values have unique names, the same on all
  // ranks. After construction SIGTERM and SIGINT no longer end the process; see CheckHostUpdates.
  State(torch::nn::Module& model, torch::optim::Optimizer& optimizer,
        const std::vector<NamedValue>& values = {}, const StateOptions& options = {});
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Keeps a copy of the state in memory. The first rank of each node also writes the copy to a
  // file, which replaces the previous file once it is completely on disk. Then calls
  // CheckHostUpdates. Collective. Each call copies and writes the whole state, so commit only every
  // few batches.
  void Commit();
  // Throws HostsUpdatedInterrupt if any rank was asked to stop. Collective, with a small exchange:
  // call it more often than Commit, so that a joining node need not wait long.
  void CheckHostUpdates();
  // Restores the last commit or Sync on this rank only, so all ranks must call it. Throws kUsage if
  // there was neither a commit nor a Sync.
  void Restore();
  // Copies the state of the rank with the newest commit (the lowest such rank) to all ranks, where
  // the state counts as a commit. Collective. Run calls Sync at the start.
  void Sync();
  // Registers callbacks that all ranks call in this order at the start of a Run that begins from a
  // commit, before its Sync. The state of the commit is loaded then, and Size() is the new number
  // of ranks.
  void RegisterResetCallbacks(std::vector<std::function<void()>> callbacks);

 private:
  friend void Run(State& state, const std::function<void(State&)>& fn);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Loads this node's newest commit, calls the reset callbacks if there is a commit, then calls Sync
// and fn(state). Damaged or incomplete commits are not used; a line on stderr names the damaged
// commits. Returns when fn returns, and passes on its exceptions. Collective.
void Run(State& state, const std::function<void(State&)>& fn);

}  // namespace dslaunch::horovod::elastic
