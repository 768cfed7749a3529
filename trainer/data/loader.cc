#include "trainer/data/loader.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <exception>
#include <optional>
#include <stdexcept>
#include <thread>

#include "base/mutex.h"

namespace dslaunch {
namespace {

using Clock = std::chrono::steady_clock;

// Reads a rank's micro-batches by index.
class BatchReader {
 public:
  BatchReader(const Dataset& dataset, const BatchLoader::Options& options)
      : dataset_(dataset),
        batch_size_(static_cast<size_t>(options.batch_size)),
        batches_per_epoch_(options.batches_per_epoch),
        first_batch_(options.first_batch),
        first_sample_(options.first_sample),
        device_(options.device),
        sampler_(options.sampler) {}
  BatchReader(const Dataset& dataset, std::vector<int64_t> indices, int64_t batch_size)
      : dataset_(dataset),
        batch_size_(static_cast<size_t>(batch_size)),
        batches_per_epoch_(static_cast<int64_t>((indices.size() + batch_size_ - 1) / batch_size_)),
        indices_(std::move(indices)) {}

  int64_t batches_per_epoch() const { return batches_per_epoch_; }

  // Returns the batch on the options' device. Call this on the thread that trains.
  Batch Place(const Batch& batch) const {
    if (device_.is_cpu()) return batch;
    return {batch.inputs.to(device_, /*non_blocking=*/true),
            batch.targets.to(device_, /*non_blocking=*/true)};
  }

  Batch Read(int64_t batch) {
    if (sampler_) {
      const int64_t epoch = batch / batches_per_epoch_;
      const bool begun = epoch == first_batch_ / batches_per_epoch_;
      if (epoch != epoch_) {
        sampler_->SetEpoch(epoch, begun ? first_sample_ : 0);
        indices_ = sampler_->Indices();
        epoch_ = epoch;
      }
      batch -= begun ? first_batch_ : epoch * batches_per_epoch_;
    } else if (batch >= batches_per_epoch_) {
      throw std::out_of_range("there are no more samples");
    }
    const size_t begin = static_cast<size_t>(batch) * batch_size_;
    return Pinned(dataset_.Fetch(
        std::span(indices_).subspan(begin, std::min(batch_size_, indices_.size() - begin))));
  }

 private:
  Batch Pinned(Batch batch) const {
    if (!device_.is_cuda()) return batch;
    return {batch.inputs.pin_memory(), batch.targets.pin_memory()};
  }

  const Dataset& dataset_;
  size_t batch_size_;
  int64_t batches_per_epoch_;
  int64_t first_batch_ = 0;
  int64_t first_sample_ = 0;  // samples of the first epoch that were read before first_batch_
  c10::Device device_ = c10::kCPU;
  std::optional<DistributedSampler> sampler_;
  int64_t epoch_ = -1;            // epoch whose indices indices_ has
  std::vector<int64_t> indices_;  // indices of this rank's samples in epoch_
};

}  // namespace

class BatchLoader::Impl {
 public:
  Impl(BatchReader reader, int64_t first_batch, int64_t last_batch, int64_t prefetch)
      : reader_(std::move(reader)),
        next_(first_batch),
        read_ahead_end_(prefetch > 0 ? std::max(first_batch, last_batch) : first_batch),
        capacity_(static_cast<size_t>(prefetch)) {
    if (next_ < read_ahead_end_)
      thread_ = std::thread([this, first_batch] { ReadAhead(first_batch); });
  }

  ~Impl() {
    if (!thread_.joinable()) return;
    {
      const MutexLock lock(mutex_);
      stop_ = true;
    }
    changed_.NotifyAll();
    thread_.join();
  }

  Batch Next() {
    const Clock::time_point start = Clock::now();
    Batch batch = next_ < read_ahead_end_ ? TakeReady() : reader_.Read(next_);
    batch = reader_.Place(batch);
    ++next_;
    waited_s_ += std::chrono::duration<double>(Clock::now() - start).count();
    return batch;
  }

  double waited_s() const { return waited_s_; }

 private:
  Batch TakeReady() {
    MutexLock lock(mutex_);
    // The thread delivers each requested batch or an error, so this wait ends.
    changed_.Wait(mutex_, [&]() DSL_REQUIRES(mutex_) { return !ready_.empty() || error_; });
    if (ready_.empty()) std::rethrow_exception(error_);
    Batch batch = std::move(ready_.front());
    ready_.pop_front();
    lock.Unlock();
    changed_.NotifyAll();
    return batch;
  }

  // Reads batches on the thread. Only this thread uses the reader until its last batch is
  // delivered.
  void ReadAhead(int64_t first_batch) {
    try {
      for (int64_t batch = first_batch; batch < read_ahead_end_; ++batch) {
        {
          const MutexLock lock(mutex_);
          changed_.Wait(mutex_,
                        [&]() DSL_REQUIRES(mutex_) { return ready_.size() < capacity_ || stop_; });
          if (stop_) return;
        }
        Batch read = reader_.Read(batch);
        const MutexLock lock(mutex_);
        ready_.push_back(std::move(read));
        changed_.NotifyAll();
      }
    } catch (...) {
      const MutexLock lock(mutex_);
      error_ = std::current_exception();
      changed_.NotifyAll();
    }
  }

  BatchReader reader_;
  int64_t next_;            // index of the batch that Next() returns next
  int64_t read_ahead_end_;  // index of the first batch that Next() reads itself
  size_t capacity_;
  double waited_s_ = 0;

  Mutex mutex_;
  CondVar changed_;
  std::deque<Batch> ready_ DSL_GUARDED_BY(mutex_);
  std::exception_ptr error_ DSL_GUARDED_BY(mutex_);
  bool stop_ DSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

BatchLoader::BatchLoader(const Dataset& dataset, const Options& options)
    : impl_(std::make_unique<Impl>(BatchReader(dataset, options), options.first_batch,
                                   options.last_batch, options.prefetch)) {}

BatchLoader::BatchLoader(const Dataset& dataset, std::vector<int64_t> indices, int64_t batch_size,
                         int64_t prefetch) {
  BatchReader reader(dataset, std::move(indices), batch_size);
  const int64_t batches = reader.batches_per_epoch();
  impl_ = std::make_unique<Impl>(std::move(reader), 0, batches, prefetch);
}

BatchLoader::~BatchLoader() = default;
Batch BatchLoader::Next() { return impl_->Next(); }
double BatchLoader::waited_s() const { return impl_->waited_s(); }

}  // namespace dslaunch
