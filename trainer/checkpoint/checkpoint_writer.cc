#include "trainer/checkpoint/checkpoint_writer.h"

#include <algorithm>
#include <functional>
#include <thread>

#include "base/deadline.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/rank_record.h"

namespace dslaunch {
namespace {

// Returns once the other ranks have set `keys` in the store. Every rank calls it as often, with or
// without keys.
using AwaitKeys = std::function<void(const std::vector<std::string>& keys)>;

// One checkpoint, from one rank's view. The ranks tell each other by the store how far they are:
// rank 0 the folder, each its record, rank 0 how it ended.
class SaveRound {
 public:
  SaveRound(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size, std::string prefix,
            AwaitKeys await)
      : store_(std::move(store)),
        rank_(rank),
        world_size_(world_size),
        prefix_(std::move(prefix)),
        await_(std::move(await)) {}

  void Run(CheckpointFolder& folder, const CheckpointContent& content, const std::string& tag,
           int64_t keep) const {
    const std::string begun = Agreed("folder", [&] { return folder.Begin(tag); });
    Put(RecordKey(rank_), Write(begun, content));
    std::vector<std::string> records;
    for (int rank = 0; rank < world_size_; ++rank) records.push_back(RecordKey(rank));
    await_(rank_ == 0 ? records : std::vector<std::string>{});
    Agreed("end", [&] {
      Commit(folder, begun, content.manifest, tag, keep, records);
      return std::string();
    });
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

  // What `make` returns on rank 0, on every rank; where it throws, every rank does.
  std::string Agreed(const char* name, const std::function<std::string()>& make) const {
    const std::string key = prefix_ + name;
    if (rank_ == 0) {
      std::string made;
      const std::string failure = FailureOf([&] { made = kGood + make(); });
      const std::string& text = failure.empty() ? made : failure;
      Put(key, text);
      await_({});
      return Told(text);
    }
    await_({key});
    return Told(Get(key));
  }
  std::string Told(const std::string& text) const {
    if (text.starts_with(kGood)) return text.substr(sizeof kGood - 1);
    // Rank 0 has the store, and leaves when all know why.
    const auto knows = [this](int rank) { return prefix_ + "knows_" + std::to_string(rank); };
    std::vector<std::string> all;
    for (int rank = 0; rank < world_size_; ++rank) all.push_back(knows(rank));
    Put(knows(rank_), kGood);
    await_(rank_ == 0 ? all : std::vector<std::string>{});
    ThrowFirstFailure({text});
    return "";
  }

  // This rank's record, or why there is none.
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
      throw TrainError(error.code(), "the checkpoint " + tag + " is not saved: " + error.what());
    }
    try {
      folder.Settle(tag, run_id, keep);
    } catch (const TrainError& error) {
      throw TrainError(
          error.code(),
          "the checkpoint " + tag +
              " is saved, but `latest` is not updated or old checkpoints are not removed: " +
              error.what());
    }
  }

  static constexpr char kGood[] = "=";

  c10::intrusive_ptr<c10d::Store> store_;
  int rank_;
  int world_size_;
  std::string prefix_;
  AwaitKeys await_;
};

// For a thread beside the one that uses the process group. Asking again and again leaves the store
// to others in between, which a wait for the keys would not.
AwaitKeys Polling(const c10::intrusive_ptr<c10d::Store>& store, const std::atomic<bool>& gives_up) {
  return [store, &gives_up, deadline = Deadline::After(CheckpointWriter::kTimeout)](
             const std::vector<std::string>& keys) {
    milliseconds pause(1);
    while (!keys.empty() && !store->check(keys)) {
      if (gives_up) throw TrainError(ExitCode::kInternal, "the save was cancelled");
      if (deadline.Expired()) {
        throw TrainError(ExitCode::kTimedOut,
                         "a checkpoint is not saved: a rank has not written its part within " +
                             std::to_string(CheckpointWriter::kTimeout.count()) + " minutes");
      }
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, milliseconds(50));
    }
  };
}

}  // namespace

CheckpointWriter::~CheckpointWriter() {
  gives_up_ = true;
  if (under_way_.valid()) under_way_.wait();
}

void CheckpointWriter::Save(const CheckpointContent& content, const std::string& tag,
                            int64_t keep) {
  Wait();
  // A barrier of the group, because it notices at once when a rank is lost.
  SaveRound(group_.store(), group_.rank(), group_.world_size(), group_.NewKey("checkpoint"),
            [this](const std::vector<std::string>&) { group_.Barrier(); })
      .Run(folder_, content, tag, keep);
}

void CheckpointWriter::SaveInBackground(const CheckpointContent& content, const std::string& tag,
                                        int64_t keep) {
  Wait();
  CheckpointContent copy = content;
  for (StateFile& file : copy.files) file.parts = Snapshot(std::move(file.parts));
  const SaveRound round(group_.store(), group_.rank(), group_.world_size(),
                        group_.NewKey("checkpoint"), Polling(group_.store(), gives_up_));
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
