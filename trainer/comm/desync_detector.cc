#include "trainer/comm/desync_detector.h"

#include <ATen/core/ivalue.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

namespace dslaunch {
namespace {

// Lets a wait for a collective, which Gloo cannot abort, end early.
class CollectiveEnd {
 public:
  void Set(bool done) {
    const MutexLock lock(mutex_);
    if (!done_) done_ = done;
    changed_.NotifyAll();
  }
  // Whether the collective is done, or else its wait was interrupted.
  bool Wait() {
    const MutexLock lock(mutex_);
    changed_.Wait(mutex_, [this]() DSL_REQUIRES(mutex_) { return done_.has_value(); });
    return *done_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::optional<bool> done_ DSL_GUARDED_BY(mutex_);
};

}  // namespace

DesyncDetector::Patience DesyncDetector::PatienceFor(milliseconds timeout) {
  return {.quiet = std::min<milliseconds>(Patience().quiet, timeout / 4),
          .limit = timeout - std::min<milliseconds>(std::chrono::seconds(30), timeout / 2)};
}

DesyncDetector::DesyncDetector(c10::intrusive_ptr<c10d::Store> store, int rank,
                               std::vector<size_t> names)
    : rank_(rank),
      world_size_(static_cast<int>(names.size())),
      names_(std::move(names)),
      store_(std::move(store)) {}

DesyncDetector::~DesyncDetector() {
  Stop();
  if (thread_.joinable()) thread_.join();
}

void DesyncDetector::Watch(const Patience& patience) {
  if (watched_ || world_size_ == 1) return;
  watched_ = true;
  patience_ = patience;
  // A connection of its own: one that waits serves nobody else.
  store_ = c10::make_intrusive<c10d::PrefixStore>("lockstep", store_->clone());
  Tell({});
  thread_ = std::thread([this] { Run(); });
}

void DesyncDetector::Stop() {
  const MutexLock lock(mutex_);
  stopped_ = true;
  stop_called_.NotifyAll();
}

Exchange DesyncDetector::Begin(const std::string& what) {
  const MutexLock lock(mutex_);
  return {what, ++begun_[what]};
}

void DesyncDetector::Wait(const Exchange& exchange, const c10::intrusive_ptr<c10d::Work>& work) {
  if (!watched_) {
    work->wait();
    return;
  }
  if (c10d::isP2POp(work->retrieveOpType())) {
    Wait(
        exchange, [&] { work->wait(); }, [work] { work->abort(); });
    return;
  }
  const auto end = std::make_shared<CollectiveEnd>();
  work->getFuture()->addCallback([end](c10::ivalue::Future&) { end->Set(/*done=*/true); });
  Wait(
      exchange,
      [&] {
        if (end->Wait()) work->wait();  // which throws what went wrong
      },
      [end] { end->Set(/*done=*/false); });
}

void DesyncDetector::Wait(const Exchange& exchange, const std::function<void()>& wait) {
  Wait(exchange, wait, [] {});
}

void DesyncDetector::Wait(const Exchange& exchange, const std::function<void()>& wait,
                          std::function<void()> interrupt) {
  {
    const MutexLock lock(mutex_);
    if (ends_) throw TrainError(*verdict_);
    waiting_ = {exchange, Clock::now(), std::move(interrupt)};
  }
  try {
    wait();
  } catch (const std::exception&) {
    const MutexLock lock(mutex_);
    waiting_.reset();
    // Where another rank has ended first, because of the same, connections break here.
    if (verdict_) throw TrainError(*verdict_);
    throw;
  }
  const MutexLock lock(mutex_);
  waiting_.reset();
  if (ends_) throw TrainError(*verdict_);
}

void DesyncDetector::Run() {
  CollectiveProgress told;
  while (Sleep(Period())) {
    CollectiveProgress place;
    std::optional<Waiting> waiting;
    {
      const MutexLock lock(mutex_);
      if (waiting_ && Clock::now() - waiting_->since >= patience_.quiet) {
        waiting = waiting_;
        place = {.awaited = waiting->exchange, .begun = begun_};
      }
    }
    try {
      if (place != told) Tell(place);
      told = place;
      if (!waiting) continue;
      std::optional<TrainError> verdict = Judge(Ask(place), *waiting);
      if (!verdict) continue;
      {
        const MutexLock lock(mutex_);
        if (!waiting->SameAs(waiting_)) continue;  // it came at the last moment
        verdict_ = std::move(verdict);
      }
      LetOthersSee(place);
    } catch (const std::exception&) {
      // The store has gone, and rank 0 with it: connections break, which ends the wait too.
    }
    const MutexLock lock(mutex_);
    if (!verdict_) return;
    ends_ = true;
    if (waiting_) waiting_->interrupt();
    return;
  }
}

std::optional<TrainError> DesyncDetector::Judge(const std::vector<CollectiveProgress>& places,
                                                const Waiting& waiting) const {
  const auto own = static_cast<size_t>(rank_);
  const auto waited = std::chrono::duration_cast<milliseconds>(Clock::now() - waiting.since);
  const std::vector<size_t> stuck = FindStuck(places);
  // The others have some time to say what they wait for, so that it can be named.
  const bool all_said = std::ranges::all_of(
      places, [](const CollectiveProgress& place) { return place.awaited.has_value(); });
  if ((all_said || waited >= 2 * patience_.quiet) && std::ranges::find(stuck, own) != stuck.end()) {
    return TrainError(ExitCode::kBadInput, DescribeStuck(places, names_));
  }
  if (waited < patience_.limit) return std::nullopt;
  return TrainError(ExitCode::kTimedOut, DescribeLate(places, own, waited, names_));
}

// Whoever ends first breaks the others' connections, and rank 0 may have the store: so a rank that
// knows gives the others a moment to see the same.
void DesyncDetector::LetOthersSee(CollectiveProgress place) {
  place.knows = true;
  Tell(place);
  for (int round = 0; round < 3; ++round) {
    const std::vector<CollectiveProgress> places = Ask(place);
    const bool all = std::ranges::all_of(
        places, [](const CollectiveProgress& other) { return other.knows || !other.awaited; });
    if (!Sleep(Period()) || all) return;
  }
}

bool DesyncDetector::Sleep(milliseconds duration) {
  const MutexLock lock(mutex_);
  return !stop_called_.WaitFor(mutex_, duration,
                               [this]() DSL_REQUIRES(mutex_) { return stopped_; });
}

std::string DesyncDetector::KeyOf(int rank) const { return std::to_string(rank); }

void DesyncDetector::Tell(const CollectiveProgress& place) {
  const std::string text = FormatProgress(place);
  store_->set(KeyOf(rank_), std::vector<uint8_t>(text.begin(), text.end()));
}

// Of all ranks. One that has not come to Watch yet counts as one that computes.
std::vector<CollectiveProgress> DesyncDetector::Ask(const CollectiveProgress& own) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < world_size_; ++rank) keys.push_back(KeyOf(rank));
  std::vector<CollectiveProgress> places(keys.size());
  if (store_->check(keys)) {
    const std::vector<std::vector<uint8_t>> values = store_->multiGet(keys);
    std::ranges::transform(values, places.begin(), [](const std::vector<uint8_t>& value) {
      return ParseProgress(std::string(value.begin(), value.end()));
    });
  }
  places[static_cast<size_t>(rank_)] = own;
  return places;
}

}  // namespace dslaunch
