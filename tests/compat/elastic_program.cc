// Trains 2 epochs of 10 batches with dslaunch/horovod_elastic.h, as a rank of a launcher:
// elastic_program FAULT.
// In the first attempt, FAULT happens around the commit of batch kAt of epoch 0 on rank
// ELASTIC_RANK (default 1). ELASTIC_OUT is a folder. Rank 0 writes "losses" there, with a line for
// each batch of each attempt. Every rank writes "samples.RANK" there, with the samples of each
// batch. ELASTIC_FOLDER is StateOptions::folder.
#include <dslaunch/dslaunch.h>
#include <dslaunch/horovod_elastic.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <string>
#include <thread>
#include <vector>

namespace fs = std::filesystem;
namespace hvd = dslaunch::horovod;

namespace {

constexpr int64_t kEpochs = 2, kBatches = 10, kRows = 24, kInputs = 20, kAt = 5;

std::string Variable(const char* name, const std::string& otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

struct Mlp : torch::nn::Module {
  const int64_t width = std::stoi(Variable("ELASTIC_WIDTH", "32"));
  torch::nn::Linear fc1 = register_module("fc1", torch::nn::Linear(kInputs, width));
  torch::nn::Linear fc2 = register_module("fc2", torch::nn::Linear(width, 10));
  at::Tensor passes = register_buffer("passes", at::zeros({}, at::kLong));
  at::Tensor forward(const at::Tensor& x) {
    passes += 1;
    return fc2(at::relu(fc1(x)));
  }
};

template <class Condition>
void WaitUntil(const char* what, Condition condition) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > limit) throw std::runtime_error(what);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

// Returns the only commit in a node's part of a folder.
fs::path CommitIn(const fs::path& folder) {
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder, missing)) {
    if (entry.path().filename().string().starts_with("commit.")) return entry.path();
  }
  return {};
}

class Trainer {
 public:
  explicit Trainer(std::string fault) : fault_(std::move(fault)) {}

  void Train() {
    hvd::Init();
    folder_ = Variable("ELASTIC_FOLDER", Variable("DSLAUNCH_RANK_DIR", "") + "/../../elastic");
    // The first Sync makes the ranks' weights equal.
    at::manual_seed(static_cast<uint64_t>(hvd::Rank()));
    model_ = std::make_shared<Mlp>();
    adam_ = std::make_shared<torch::optim::Adam>(model_->parameters(), 0.01);
    hvd::DistributedOptimizer optimizer(adam_, hvd::NamedParameters(*model_));
    hvd::elastic::ElasticSampler sampler(kBatches * kRows);
    sampler_ = &sampler;
    std::vector<hvd::elastic::NamedValue> values = {
        {"epoch", &epoch_}, {"batch", &batch_}, {"loss_sum", &loss_sum_}};
    // With the fault "newest", rank 0 waits for a commit. Ranks that commit a sampler wait for each
    // other, so this fault has no sampler.
    if (fault_ != "newest") values.push_back({"sampler", sampler_});
    hvd::elastic::State state(*model_, *adam_, values, {.folder = Variable("ELASTIC_FOLDER", "")});
    state.RegisterResetCallbacks({[&] {
      adam_->param_groups()[0].options().set_lr(0.01 * hvd::Size() /
                                                std::stoi(Variable("ELASTIC_RANKS", "1")));
    }});
    hvd::elastic::Run(state, [&](hvd::elastic::State& same) {
      if (fault_ == "newest") taken_ = batch_;
      for (; epoch_ < kEpochs; NextEpoch()) {
        while (batch_ < kBatches) {
          TakeStep(optimizer);
          if (IsFaulty()) BeforeCommit();
          same.Commit();
          if (epoch_ == 0 && batch_ == kAt) AfterCommit(same);
        }
      }
    });
    hvd::Shutdown();
  }

 private:
  bool IsFirstAttempt() const { return Variable("DSLAUNCH_ATTEMPT", "1") == "1"; }
  bool IsFaulty() const {
    return IsFirstAttempt() && epoch_ == 0 && batch_ == kAt &&
           hvd::Rank() == std::stoi(Variable("ELASTIC_RANK", "1"));
  }

  void NextEpoch() {
    ++epoch_, batch_ = taken_ = 0;
    sampler_->SetEpoch(epoch_);
  }

  // Takes a step on this rank's equal part of a batch. The whole batch does not depend on the
  // number of ranks.
  void TakeStep(hvd::DistributedOptimizer& optimizer) {
    const int64_t rows = kRows / hvd::Size();
    const std::vector<int64_t> mine = sampler_->GetIndices(taken_, rows);
    sampler_->RecordBatch(taken_++, rows);
    std::ofstream samples(Variable("ELASTIC_OUT", ".") + "/samples." + std::to_string(hvd::Rank()),
                          std::ios::app);
    samples << Variable("DSLAUNCH_ATTEMPT", "1") << " " << epoch_ * kBatches + batch_ + 1;
    for (const int64_t sample : mine) samples << " " << sample;
    samples << std::endl;
    at::manual_seed(1);
    const at::Tensor chosen = at::tensor(mine, at::kLong);
    const at::Tensor inputs = at::randn({kBatches * kRows, kInputs}).index_select(0, chosen);
    const at::Tensor targets =
        at::randint(0, 10, {kBatches * kRows}, at::kLong).index_select(0, chosen);
    optimizer.ZeroGrad();
    at::Tensor loss = dslaunch::CrossEntropy(model_->forward(inputs), targets);
    loss.backward();
    optimizer.Step();
    const double mean = hvd::Allreduce(loss.detach(), {.name = "loss"}).item<double>();
    loss_sum_ += mean;
    ++batch_;
    if (hvd::Rank() != 0) return;
    std::ofstream(Variable("ELASTIC_OUT", ".") + "/losses", std::ios::app)
        << std::setprecision(9) << Variable("DSLAUNCH_ATTEMPT", "1") << " " << hvd::Size() << " "
        << epoch_ * kBatches + batch_ << " " << mean << " " << loss_sum_ << " "
        << adam_->param_groups()[0].options().get_lr() << " " << model_->passes.item<int64_t>()
        << std::endl;
  }

  void BeforeCommit() const {
    if (fault_ != "newest") return;
    const auto other = [&] { return CommitIn(folder_ / "node_1").filename().string(); };
    WaitUntil("node 1 commits", [&] { return other().starts_with("commit.1.5."); });
    std::raise(SIGKILL);
  }

  void AfterCommit(hvd::elastic::State& state) {
    if (fault_ == "restore") {
      const at::NoGradGuard no_grad;
      for (const at::Tensor& parameter : model_->parameters()) parameter.fill_(7);
      adam_->state().clear();
      adam_->param_groups()[0].options().set_lr(7);
      epoch_ = batch_ = 99, loss_sum_ = -1;
      sampler_->SetEpoch(99);
      state.Restore();
      taken_ = 0;
      return;
    }
    if (!IsFirstAttempt()) return;
    if (fault_ == "wait") {
      WaitUntil("a node joins", [&] { return state.CheckHostUpdates(), false; });
    }
    if (!IsFaulty()) return;
    if (fault_ == "throw") throw std::runtime_error("enough");
    if (fault_ == "lose") fs::remove_all(folder_);
    if (fault_ == "damage") {
      const fs::path commit = CommitIn(folder_ / "node_0");
      fs::resize_file(commit, fs::file_size(commit) - 1);
    }
    if (fault_ != "none") std::raise(SIGKILL);
  }

  const std::string fault_;
  fs::path folder_;
  std::shared_ptr<Mlp> model_;
  std::shared_ptr<torch::optim::Adam> adam_;
  hvd::elastic::ElasticSampler* sampler_ = nullptr;
  int64_t taken_ = 0;  // number of batches taken from the sampler's part
  int64_t epoch_ = 0, batch_ = 0;
  double loss_sum_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  return dslaunch::Main([&] { Trainer(argv[1]).Train(); });
}
