// Detects ranks that have diverged and wait for each other, and ends their waits with an error that
// names what each of them waits for.
#pragma once

#include <c10/core/Event.h>

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "base/deadline.h"
#include "base/mutex.h"
#include "dslaunch/process_group.h"
#include "trainer/base/train_error.h"
#include "trainer/comm/collective_progress.h"
#include "trainer/comm/wait_report.h"

namespace dslaunch {

// Every wait of a rank for the others goes through the detector of its ProcessGroup. After Watch, a
// thread reports long waits of this rank to the others, through the store, and reads theirs
// (collective_progress.h). If this rank is stuck, or has waited too long, the wait throws
// TrainError, kBadInput or kTimedOut; so does every later one. The rank's agent gets the waits too.
// Begin and Wait belong to the thread that runs the collectives. A training step without long waits
// costs only a lock for each wait.
//
// On a device the stream waits, not the thread, which continues and later waits for the stream in
// any operation, where nothing can be thrown to it. So an event behind each collective shows the
// progress of the stream, and if there is none the process ends by ExitByFailure
// (trainer/base/failure_exit.h).
class DesyncDetector : public std::enable_shared_from_this<DesyncDetector> {
 public:
  struct Patience {
    std::chrono::milliseconds quiet{5'000};  // a shorter wait is not reported
    std::chrono::milliseconds limit{570'000};
  };
  // The patience for a group with this timeout. The limit is shorter, because the group's own error
  // names no rank.
  static Patience PatienceFor(std::chrono::milliseconds timeout);

  // `names` are the ranks' names in messages, by rank.
  DesyncDetector(c10::intrusive_ptr<c10d::Store> store, int rank, std::vector<size_t> names);
  ~DesyncDetector();
  DesyncDetector(const DesyncDetector&) = delete;
  DesyncDetector& operator=(const DesyncDetector&) = delete;

  // From now on `all` reports this group's exchanges, so that ranks of several groups that wait for
  // each other are found. One thread must begin and await the exchanges of both. `members` are the
  // group's ranks in the group of `all`. Call it before the first Watch.
  void Join(std::shared_ptr<DesyncDetector> all, std::vector<size_t> members);

  // Starts the thread, which connects to the store. Only the first call has an effect.
  void Watch(const Patience& patience);
  void Stop();  // asks the thread to end, without waiting

  // Counts an exchange. Call it just before this rank begins its part.
  Exchange Begin(const std::string& what);
  // Returns when `work` is done; on a device, when the current stream has been made to wait for it.
  // Throws what `work` throws.
  void Wait(const Exchange& exchange, const c10::intrusive_ptr<c10d::Work>& work);
  // Calls `wait`, which waits for `exchange` inside of a library and must end by itself, because it
  // is not interrupted. The other ranks see that this rank waits, and `wait` ends once they exit.
  void Wait(const Exchange& exchange, const std::function<void()>& wait);

 private:
  struct Waiting {
    Exchange exchange;
    Clock::time_point since;
    std::function<void()> interrupt;
    bool on_device = false;
    bool SameAs(const std::optional<Waiting>& other) const {
      return other && other->since == since && other->exchange == exchange;
    }
  };

  // A collective that is queued in the device's stream.
  struct Enqueued {
    Exchange exchange;
    std::shared_ptr<c10::Event> done;
    Clock::time_point since;  // time at which it became the first that is not done
  };

  Exchange Begin(const std::string& what, const std::vector<size_t>& members);
  void Wait(const Exchange& exchange, const std::function<void()>& wait,
            std::function<void()> interrupt);
  void WaitOnDevice(const Exchange& exchange, const c10::intrusive_ptr<c10d::Work>& work,
                    c10::Device device);
  void ForgetDone() DSL_REQUIRES(mutex_);
  // Returns a wait that is long enough to report, and sets `place` to this rank's progress.
  std::optional<Waiting> LongWait(CollectiveProgress* place) DSL_REQUIRES(mutex_);
  bool StillWaits(const Waiting& waiting) DSL_REQUIRES(mutex_);
  void Run();
  bool Sleep(std::chrono::milliseconds duration);  // returns false after Stop
  std::string KeyOf(int rank) const;
  void Publish(const CollectiveProgress& place);
  std::vector<CollectiveProgress> Ask(const CollectiveProgress& own);
  std::optional<TrainError> Judge(const std::vector<CollectiveProgress>& places,
                                  const Waiting& waiting) const;
  void PublishEnd(CollectiveProgress place);
  std::chrono::milliseconds Period() const { return patience_.quiet / 5; }

  const int rank_;
  const int world_size_;
  const std::vector<size_t> names_;
  c10::intrusive_ptr<c10d::Store> store_;  // the thread's own from Watch on
  std::shared_ptr<DesyncDetector> all_;    // set by Join, with members_
  std::vector<size_t> members_;
  Patience patience_;
  const WaitReport wait_report_;
  bool watched_ = false;

  Mutex mutex_;
  CondVar stop_called_;
  bool stopped_ DSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, int64_t> begun_ DSL_GUARDED_BY(mutex_);
  std::optional<Waiting> waiting_ DSL_GUARDED_BY(mutex_);
  std::deque<Enqueued> enqueued_ DSL_GUARDED_BY(mutex_);
  // Exchanges that a device may not have completed yet, in the order in which they were begun.
  std::deque<Exchange> unsettled_ DSL_GUARDED_BY(mutex_);
  std::optional<TrainError> verdict_ DSL_GUARDED_BY(mutex_);
  // True: the wait throws `verdict_`, even if it would return.
  bool ends_ DSL_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

}  // namespace dslaunch
