#include "trainer/checkpoint/checkpoint_writer.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <thread>

#include "base/deadline.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/rank_record.h"

namespace dslaunch {
namespace {

// Waits until the other ranks have set `keys` in the store. Every rank makes the same number of
// calls, with or without keys.
using AwaitKeys = std::function<void(const std::vector<std::string>& keys)>;

// Performs a rank's part in saving one checkpoint. The ranks report through the store: rank 0
// reports that the folder exists, then each rank reports its record, then rank 0 reports the
// result. Every rank computes the folder from its own --checkpoint_dir and the tag, so paths are
// not exchanged.
class SaveRound {
 public:
  SaveRound(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size, std::string prefix,
            const std::string& scope, AwaitKeys await)
      : store_(std::move(store)),
        rank_(rank),
        world_size_(world_size),
        prefix_(std::move(prefix)),
        save_(prefix_ + scope),
        await_(std::move(await)) {}

  void Run(CheckpointFolder& folder, const CheckpointContent& content, const std::string& tag,
           int64_t keep) const {
    const std::string begun = folder.BegunPath(tag, save_);
    Agree("folder", [&] { folder.Begin(begun); });
    Put(RecordKey(rank_), Write(begun, content));
    std::vector<std::string> records;
    for (int rank = 0; rank < world_size_; ++rank) records.push_back(RecordKey(rank));
    await_(rank_ == 0 ? records : std::vector<std::string>{});
    Agree("end", [&] { Commit(folder, begun, content.manifest, tag, keep, records); });
  }

 private:
  std::string RecordKey(int rank) const { return prefix_ + "rank_" + std::to_string(rank); }

  void Put(const std::string& key, const std::string& text) const {
    store_->set(key, std::vector<uint8_t>(text.begin(), text.end()));
  }
  std::string Get(const std::string& key) const {
    const std::vector<uint8_t> value = store_->get(key);
    return {value.begin(), value.end()};
  }

  // Runs `action` on rank 0. If `action` throws, every rank throws the same error.
  void Agree(const char* name, const std::function<void()>& action) const {
    const std::string key = prefix_ + name;
    if (rank_ == 0) {
      const std::string failure = FailureOf(action);
      const std::string text = failure.empty() ? kGood : failure;
      Put(key, text);
      await_({});
      return ThrowUnlessGood(text);
    }
    await_({key});
    ThrowUnlessGood(Get(key));
  }
  void ThrowUnlessGood(const std::string& text) const {
    if (text == kGood) return;
    // Rank 0 hosts the store, so it waits until all ranks have read the error before it throws.
    const auto knows = [this](int rank) { return prefix_ + "knows_" + std::to_string(rank); };
    std::vector<std::string> all;
    for (int rank = 0; rank < world_size_; ++rank) all.push_back(knows(rank));
    Put(knows(rank_), kGood);
    await_(rank_ == 0 ? all : std::vector<std::string>{});
    ThrowFirstFailure({text});
  }

  // Writes this rank's files. Returns this rank's record as text, or FormatFailure of its failure.
  std::string Write(const std::string& begun, const CheckpointContent& content) const {
    RankRecord record;
    const std::string failure = FailureOf([&] {
      for (const StateFile& file : content.files) WriteFile(begun, file, record);
    });
    return failure.empty() ? FormatRecord(record) : failure;
  }

  void Commit(CheckpointFolder& folder, const std::string& begun, Manifest manifest,
              const std::string& tag, int64_t keep, const std::vector<std::string>& keys) const {
    const std::string run_id = manifest.run_id;
    try {
      std::vector<RankRecord> records;
      for (int rank = 0; rank < world_size_; ++rank) {
        records.push_back(ParseRecord(Get(keys[static_cast<size_t>(rank)]), rank));
      }
      for (const std::string& key : keys) store_->deleteKey(key);
      EnterRecords(records, manifest);
      folder.Commit(begun, tag, std::move(manifest));
    } catch (const TrainError& error) {
      folder.Abandon(begun);
      const TrainError cause = LostLease(folder).value_or(error);
      throw TrainError(cause.code(), "the checkpoint " + tag + " is not saved: " + cause.what());
    }
    try {
      folder.Settle(tag, run_id, keep);
    } catch (const TrainError& error) {
      const TrainError cause = LostLease(folder).value_or(error);
      throw TrainError(
          cause.code(),
          "the checkpoint " + tag +
              " is saved, but `latest` is not updated or old checkpoints are not removed: " +
              cause.what());
    }
  }

  // Returns the error if another job has taken the lease. The other job has then removed the files
  // of this save, so this error is the cause of the failure.
  static std::optional<TrainError> LostLease(const CheckpointFolder& folder) {
    try {
      folder.ConfirmLease();
    } catch (const TrainError& error) {
      if (error.code() == ExitCode::kBadInput) return error;
    }
    return std::nullopt;
  }

  static constexpr char kGood[] = "=";

  c10::intrusive_ptr<c10d::Store> store_;
  int rank_;
  int world_size_;
  std::string prefix_;
  std::string save_;  // unique name of this save, equal on all ranks
  AwaitKeys await_;
};

// Returns an AwaitKeys for a thread that runs concurrently with the user of the process group.
// Waiting for the keys would block the store for other threads, so this function polls the store.
AwaitKeys Polling(const c10::intrusive_ptr<c10d::Store>& store, const std::atomic<bool>& gives_up) {
  return [store, &gives_up, deadline = Deadline::After(CheckpointWriter::kTimeout)](
             const std::vector<std::string>& keys) {
    milliseconds pause(1);
    while (!keys.empty() && !store->check(keys)) {
      if (gives_up) throw TrainError(ExitCode::kInternal, "the save was cancelled");
      if (deadline.Expired()) {
        throw PeerLate("a checkpoint is not saved: a rank has not written its part within " +
                       std::to_string(CheckpointWriter::kTimeout.count()) + " minutes");
      }
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, milliseconds(50));
    }
  };
}

}  // namespace

std::string SaveScope(const WorkerEnv& env) {
  return env.job_id + "/" + std::to_string(env.attempt);
}

CheckpointWriter::~CheckpointWriter() {
  gives_up_ = true;
  if (under_way_.valid()) under_way_.wait();
}

void CheckpointWriter::Save(const CheckpointContent& content, const std::string& tag,
                            int64_t keep) {
  Wait();
  // The group detects a lost rank at once, so ranks wait in a barrier of the group.
  SaveRound(group_.store(), group_.rank(), group_.world_size(), group_.NewKey("checkpoint"), scope_,
            [this](const std::vector<std::string>&) { group_.Barrier(); })
      .Run(folder_, content, tag, keep);
}

void CheckpointWriter::SaveInBackground(const CheckpointContent& content, const std::string& tag,
                                        int64_t keep) {
  Wait();
  CheckpointContent copy = content;
  for (StateFile& file : copy.files) file.parts = Snapshot(std::move(file.parts));
  const SaveRound round(group_.store(), group_.rank(), group_.world_size(),
                        group_.NewKey("checkpoint"), scope_, Polling(group_.store(), gives_up_));
  under_way_ = std::async(std::launch::async, [this, round, copy = std::move(copy), tag, keep] {
    try {
      round.Run(folder_, copy, tag, keep);
    } catch (...) {
      failed_ = true;
      throw;
    }
  });
}

void CheckpointWriter::Wait() {
  if (!under_way_.valid()) return;
  under_way_.wait();
  failed_ = false;
  under_way_.get();
}

}  // namespace dslaunch
