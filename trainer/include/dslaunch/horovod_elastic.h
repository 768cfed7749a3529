// Horovod's elastic training (hvd.elastic), on the restarts of dslaunch:
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
// What differs from Horovod, whose processes survive a reset:
// - A reset starts new processes on all nodes, as the next attempt of the job: after a failure
//   where --max_restarts allows it, and for a node that comes with --on_join now. All of main()
//   runs again, up to Run, which begins from the newest commit. So Commit also writes files.
// - The launcher asks by SIGTERM. It does so too where the job is to end (dslaunch stop, Ctrl-C,
//   --time_limit): HostsUpdatedInterrupt means both. The program has until --grace for its next
//   Commit or CheckHostUpdates.
// - A failed exchange (Horovod's HorovodInternalError) is a TrainError kUnavailable or kTimedOut,
//   and leaves Run and the process as such, for the launcher to start the next attempt.
//
// Main in dslaunch/program.h turns what leaves Run into the exit codes that the launcher expects.
// Between Init and Shutdown, from the thread that called Init. Errors are TrainError: besides those
// of horovod.h kUsage for a wrong call, kIo where a commit cannot be written, kBadInput where a
// commit is of another model.
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

// All ranks get it at the same call, after a commit where it comes from Commit. Main ends the
// program with 85 and without a message.
class HostsUpdatedInterrupt : public TrainError {
 public:
  HostsUpdatedInterrupt();
};

struct ElasticSamplerOptions {
  bool shuffle = true;  // else in the order of the data
  uint64_t seed = 0;
};

// Which samples of an epoch a rank takes. As a value of a State it knows, after a reset, which
// samples the commit has seen, and the ranks, however many there are then, share the others:
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
// Each sample comes once in an epoch, and every rank has the same number: where what is left cannot
// be shared evenly, the first of it come twice, Size() - 1 of them at most. Between Init and
// Shutdown. Not thread-safe.
class ElasticSampler {
 public:
  // Of samples 0 to `num_samples` - 1, one at least; in epoch 0. The same on all ranks.
  explicit ElasticSampler(int64_t num_samples, const ElasticSamplerOptions& options = {});

  // Begins an epoch, whose order comes from seed + epoch: nothing of it is processed. As in Horovod
  // call it when an epoch ends; at its start, it would forget what was recorded before a reset.
  void SetEpoch(int64_t epoch);
  int64_t epoch() const { return epoch_; }

  // This rank's part of what was left of the epoch at SetEpoch, or where Run, Restore or Sync took
  // a commit. What is recorded meanwhile does not change it.
  const std::vector<int64_t>& Indices() const { return indices_; }
  // Into how many batches of this size the part is cut; the last one may be shorter.
  int64_t Batches(int64_t batch_size) const {
    return (static_cast<int64_t>(indices_.size()) + batch_size - 1) / batch_size;
  }
  // The samples of one of these, counted from 0.
  std::vector<int64_t> GetIndices(int64_t batch, int64_t batch_size) const;

  // These are processed. A commit has what all ranks have recorded until then. It takes a byte for
  // each of the `num_samples`, in the exchange of the ranks and in the file.
  void RecordBatch(int64_t batch, int64_t batch_size);
  void RecordIndices(const std::vector<int64_t>& indices);

  // For checkpoints of the program's own: a copy of what this rank knows to be processed, uint8
  // [num_samples], 0 where a sample is not; and back, which shares the others anew.
  at::Tensor Processed() const;
  void Load(int64_t epoch, const at::Tensor& processed);

 private:
  const int64_t num_samples_;
  const ElasticSamplerOptions options_;
  int64_t epoch_ = 0;
  at::Tensor processed_;
  std::vector<int64_t> indices_;
};

// What is committed too: a variable of the program, such as an epoch or a learning rate, or which
// samples are processed.
struct NamedValue {
  std::string name;
  std::variant<int64_t*, double*, ElasticSampler*> value;  // borrowed
};

struct StateOptions {
  // Where commits are kept, so that another job too begins from the newest one there: on each node,
  // or shared by all; made if it is missing. Of one job at a time. Empty: in the job's own folder
  // on each node, where only later attempts of this job find it; without a launcher, only in
  // memory.
  std::string folder = {};
};

// What Run gives back after a reset: parameters and buffers, the optimizer's options and state, and
// the program's values. All ranks have the same state when they commit, as in data parallel
// training; of a sampler all records are put together.
class State {
 public:
  // The model, the optimizer (one that BroadcastOptimizerState takes) and the values outlive it.
  // Values have names, each once, the same on all ranks. From here on SIGTERM and SIGINT do not
  // end the process; see CheckHostUpdates.
  State(torch::nn::Module& model, torch::optim::Optimizer& optimizer,
        const std::vector<NamedValue>& values = {}, const StateOptions& options = {});
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Keeps a copy of the state in memory; the first rank of each node also writes it into a file,
  // which takes the last one's place once it is whole on the disk. Then CheckHostUpdates.
  // Collective. It costs a copy and a write of the state: commit every few batches.
  void Commit();
  // Throws HostsUpdatedInterrupt if any rank was asked to stop. Collective, a small exchange: call
  // it more often than Commit, so that a node that comes does not wait long.
  void CheckHostUpdates();
  // Back to the last commit or Sync. Of this rank only, so all ranks call it. Throws kUsage where
  // there is none.
  void Restore();
  // All ranks get the state of the rank with the newest commit, the lowest of these, which is then
  // a commit of all. Collective. Run does it at the start.
  void Sync();
  // Called in this order on all ranks at the start of a Run that begins from a commit, before its
  // Sync. They see the state of the commit, and the new Size().
  void RegisterResetCallbacks(std::vector<std::function<void()>> callbacks);

 private:
  friend void Run(State& state, const std::function<void(State&)>& fn);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Takes the newest commit that a node has, calls the reset callbacks if there is one, Sync, and
// fn(state). Commits that are damaged, or were not written to the end, are not used; a line on
// stderr names the damaged ones. Returns when fn returns; throws what fn throws. Collective.
void Run(State& state, const std::function<void(State&)>& fn);

}  // namespace dslaunch::horovod::elastic
