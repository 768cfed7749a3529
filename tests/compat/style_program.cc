// Runs one case of tests/compat/*_test.py: style_program CASE RANKS.
// The program starts RANKS ranks itself, or is a rank of a launcher. A case throws if an
// expectation is not met.
#include <dslaunch/data_parallel.h>
#include <dslaunch/dslaunch.h>
#include <dslaunch/horovod.h>
#include <dslaunch/horovod_elastic.h>
#include <dslaunch/replicator.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>

namespace hvd = dslaunch::horovod;
using at::Tensor;

namespace {

void Check(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error("does not hold: " + what);
}
#define HOLDS(condition) Check(condition, std::string(__func__) + ": " #condition)

void CheckThrows(const std::function<void()>& action, const std::string& part) {
  try {
    action();
  } catch (const dslaunch::TrainError& error) {
    Check(std::string(error.what()).find(part) != std::string::npos,
          std::string("'") + error.what() + "' has '" + part + "'");
    return;
  }
  Check(false, "an error with '" + part + "'");
}

const std::vector<at::ScalarType> kDtypes = {at::kInt,  at::kLong, at::kFloat, at::kDouble,
                                             at::kChar, at::kByte, at::kHalf,  at::kBFloat16};

Tensor Random(const std::vector<int64_t>& shape, at::ScalarType dtype, uint64_t seed) {
  at::manual_seed(seed);
  return at::randint(0, 10, shape).to(dtype);
}

// Every style trains this model with the same data and the same number of steps.
constexpr int64_t kSteps = 20, kBatch = 24, kInputs = 20, kClasses = 10;

struct Mlp : torch::nn::Module {
  torch::nn::Linear fc1 = register_module("fc1", torch::nn::Linear(kInputs, 32));
  torch::nn::Linear fc2 = register_module("fc2", torch::nn::Linear(32, kClasses));
  Tensor forward(const Tensor& x) { return fc2(at::relu(fc1(x))); }
};

struct Batch {
  Tensor inputs, targets;
};

std::shared_ptr<Mlp> MakeModel() {
  at::manual_seed(0);
  return std::make_shared<Mlp>();
}

// Returns a rank's part of the global batch of each step.
std::vector<Batch> MakeBatches(int rank, int ranks) {
  at::manual_seed(1);
  const Tensor inputs = at::randn({kSteps, kBatch, kInputs});
  const Tensor targets = at::randint(0, kClasses, {kSteps, kBatch}, at::kLong);
  const int64_t rows = kBatch / ranks;
  std::vector<Batch> batches;
  for (int64_t step = 0; step < kSteps; ++step) {
    batches.push_back(
        {inputs[step].narrow(0, rank * rows, rows), targets[step].narrow(0, rank * rows, rows)});
  }
  return batches;
}

std::shared_ptr<torch::optim::SGD> MakeSgd(const Mlp& model) {
  return std::make_shared<torch::optim::SGD>(model.parameters(),
                                             torch::optim::SGDOptions(0.1).momentum(0.9));
}

double GradNorm(const Mlp& model) {
  double sum = 0;
  for (const Tensor& parameter : model.parameters()) {
    sum += parameter.grad().to(at::kDouble).square().sum().item<double>();
  }
  return std::sqrt(sum);
}

void PrintStep(int rank, double loss, double norm) {
  if (rank == 0) std::printf("%.9g %.9g\n", loss, norm);
}

// Takes one step of the engine, and prints the mean loss of all ranks.
template <class Engine>
void TakeStep(const dslaunch::ProcessGroup& group, Engine& engine, const Batch& batch) {
  Tensor loss = engine.Loss(engine.Forward(batch.inputs), batch.targets);
  engine.Backward(loss);
  engine.Step();
  Tensor mean = loss.detach().clone();
  group.AllReduce(mean, dslaunch::ReduceOp::kAverage);
  PrintStep(group.rank(), mean.template item<double>(), engine.core().grad_norm());
}

// Trains by the configuration in STYLE_CONFIG. With a folder STYLE_CHECKPOINTS, resumes from the
// last checkpoint there, and saves one after STYLE_UNTIL steps.
void TrainByConfig() {
  const auto group = dslaunch::InitProcessGroup();
  auto engine = dslaunch::Initialize(std::getenv("STYLE_CONFIG"), MakeModel(), group);
  engine.SetTrain();
  const char* const folder = std::getenv("STYLE_CHECKPOINTS");
  int64_t until = kSteps;
  if (folder != nullptr) {
    until = std::atoi(std::getenv("STYLE_UNTIL"));
    engine.core().LoadCheckpoint(folder);
  }
  const std::vector<Batch> batches = MakeBatches(group.rank(), group.world_size());
  while (engine.core().global_steps() < until) {
    TakeStep(group, engine, batches.at(static_cast<size_t>(engine.core().global_steps())));
  }
  if (folder != nullptr) engine.core().SaveCheckpoint(folder);
}

void TrainByEngine(const std::string& config) {
  const auto group = dslaunch::InitProcessGroup();
  auto engine = dslaunch::Initialize(
      R"({"train_batch_size": 24, "gradient_clipping": 0, )" + config +
          R"("optimizer": {"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9}}})",
      MakeModel(), group);
  engine.SetTrain();
  for (const Batch& batch : MakeBatches(group.rank(), group.world_size())) {
    TakeStep(group, engine, batch);
  }
}

// Trains with a server on every rank.
void TrainByServers() {
  const char* const ranks = std::getenv("WORLD_SIZE");
  TrainByEngine(R"("parallel": {"mode": "parameter_server", "servers": )" +
                std::string(ranks != nullptr ? ranks : "1") + "}, ");
}

void TrainByHorovod(const hvd::DistributedOptimizerOptions& options) {
  hvd::Init();
  auto model = MakeModel();
  hvd::DistributedOptimizer optimizer(MakeSgd(*model), hvd::NamedParameters(*model), options);
  hvd::BroadcastParameters(hvd::NamedParameters(*model), 0);
  hvd::BroadcastOptimizerState(optimizer.optimizer(), 0);
  for (const Batch& batch : MakeBatches(hvd::Rank(), hvd::Size())) {
    optimizer.ZeroGrad();
    Tensor loss = dslaunch::CrossEntropy(model->forward(batch.inputs), batch.targets);
    loss.backward();
    optimizer.Synchronize();
    const double norm = GradNorm(*model);
    const auto skip = optimizer.SkipSynchronize();
    optimizer.Step();
    PrintStep(hvd::Rank(), hvd::Allreduce(loss.detach(), {.name = "loss"}).item<double>(), norm);
  }
}

void TrainByReplicator() {
  const auto group = dslaunch::InitProcessGroup();
  const dslaunch::Replicator replicator(group);
  auto model = MakeModel();
  auto optimizer = replicator.WrapOptimizer(MakeSgd(*model));
  const Tensor losses = replicator.Run<Batch>(
      [](const dslaunch::InputContext& input) {
        auto batches = std::make_shared<std::vector<Batch>>(
            MakeBatches(input.replica_id(), input.num_replicas()));
        return [batches, next = size_t{0}]() mutable -> std::optional<Batch> {
          if (next == batches->size()) return std::nullopt;
          return batches->at(next++);
        };
      },
      [&](const dslaunch::ReplicaContext& replica, const Batch& batch) {
        optimizer.ZeroGrad();
        Tensor loss = dslaunch::CrossEntropy(model->forward(batch.inputs), batch.targets);
        loss.backward();
        optimizer.Synchronize();
        const double norm = GradNorm(*model);
        optimizer.Step();
        const Tensor mean = replica.AllReduce(loss.detach(), dslaunch::ReduceOp::kAverage);
        PrintStep(replica.replica_id(), mean.item<double>(), norm);
        return mean;
      },
      kSteps + 1);
  HOLDS(losses.sizes() == at::IntArrayRef({kSteps, group.world_size()}));
}

struct CopiedMlp : torch::nn::Cloneable<CopiedMlp> {
  CopiedMlp() { Reset(); }
  void reset() override { Reset(); }
  void Reset() {
    fc1 = register_module("fc1", torch::nn::Linear(kInputs, 32));
    fc2 = register_module("fc2", torch::nn::Linear(32, kClasses));
    passes = register_buffer("passes", at::zeros({1}));
  }
  Tensor forward(const Tensor& x) {
    const at::NoGradGuard no_grad;
    passes += 1;
    const at::AutoGradMode grad(true);
    return fc2(at::relu(fc1(x)));
  }
  torch::nn::Linear fc1{nullptr}, fc2{nullptr};
  Tensor passes;
};

void TrainByDataParallel(size_t devices) {
  at::manual_seed(0);
  auto model = std::make_shared<CopiedMlp>();
  dslaunch::DataParallel<CopiedMlp> parallel(model, std::vector<at::Device>(devices, at::kCPU));
  torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (const Batch& batch : MakeBatches(0, 1)) {
    sgd.zero_grad();
    Tensor loss = dslaunch::CrossEntropy(parallel.Forward(batch.inputs), batch.targets);
    loss.backward();
    double sum = 0;
    for (const Tensor& parameter : model->parameters()) {
      sum += parameter.grad().to(at::kDouble).square().sum().item<double>();
    }
    sgd.step();
    PrintStep(0, loss.item<double>(), std::sqrt(sum));
  }
  HOLDS(model->passes.item<double>() == kSteps);
  const at::NoGradGuard no_grad;
  HOLDS(!parallel.Forward(at::ones({1, kInputs})).requires_grad());
}

// These cases have the names of Horovod's own (test/parallel/test_torch.py).

void HorovodAllreduce() {
  hvd::Init();
  for (const at::ScalarType dtype : kDtypes) {
    for (int64_t dim = 1; dim <= 3; ++dim) {
      const Tensor tensor = Random(std::vector<int64_t>(static_cast<size_t>(dim), 17), dtype, 1234);
      const Tensor sum = hvd::Allreduce(tensor, {.op = hvd::Op::kSum});
      HOLDS(at::equal(sum, tensor * hvd::Size()));
      HOLDS(at::equal(hvd::Allreduce(tensor), tensor));
      const Tensor own = at::full({3}, hvd::Rank() + 1, dtype);
      HOLDS(hvd::Allreduce(own, {.op = hvd::Op::kMax})[0].item<int>() == hvd::Size());
      HOLDS(hvd::Allreduce(own, {.op = hvd::Op::kMin})[0].item<int>() == 1);
      Tensor in_place = tensor.clone();
      hvd::Allreduce_(in_place, {.op = hvd::Op::kSum});
      HOLDS(at::equal(in_place, tensor * hvd::Size()));
    }
  }
  Tensor strided = at::arange(12, at::kFloat).view({3, 4}).t();
  const Tensor expected = strided.clone() * hvd::Size();
  hvd::Allreduce_(strided, {.op = hvd::Op::kSum});
  HOLDS(at::equal(strided, expected));
}

// Checks the mean of ranks with different values, which is rounded towards zero for integers.
void HorovodAllreduceAverage() {
  hvd::Init();
  const int64_t sum = hvd::Size() * (hvd::Size() + 1) / 2;
  for (const at::ScalarType dtype : {at::kInt, at::kLong, at::kFloat, at::kDouble, at::kHalf}) {
    for (const int sign : {1, -1}) {
      const Tensor mean = hvd::Allreduce(at::full({5}, sign * (hvd::Rank() + 1), dtype));
      if (at::isIntegralType(dtype, false)) {
        HOLDS(mean[0].item<int64_t>() == sign * (sum / hvd::Size()));
      } else {
        HOLDS(std::abs(mean[0].item<double>() - static_cast<double>(sign * sum) / hvd::Size()) <
              1e-3);
      }
    }
  }
}

void HorovodAllreduceProduct() {
  hvd::Init();
  int64_t product = 1;
  for (int rank = 0; rank < hvd::Size(); ++rank) product *= rank + 2;
  for (const at::ScalarType dtype : {at::kInt, at::kLong, at::kFloat, at::kDouble}) {
    const Tensor all =
        hvd::Allreduce(at::full({3, 2}, hvd::Rank() + 2, dtype), {.op = hvd::Op::kProduct});
    HOLDS(at::equal(all, at::full({3, 2}, product, dtype)));
  }
}

void HorovodAllreducePrescale() {
  hvd::Init();
  const Tensor tensor = Random({17, 3}, at::kDouble, 7);
  const Tensor scaled =
      hvd::Allreduce(tensor, {.op = hvd::Op::kSum, .prescale_factor = 0.25, .postscale_factor = 8});
  HOLDS(at::allclose(scaled, tensor * 2 * hvd::Size()));
  const Tensor whole =
      hvd::Allreduce(at::full({2}, 5, at::kInt), {.op = hvd::Op::kSum, .prescale_factor = 0.5});
  HOLDS(whole[0].item<int>() == 2 * hvd::Size());
}

void HorovodAllreduceAsyncFused() {
  hvd::Init();
  std::vector<hvd::Handle> handles;
  std::vector<Tensor> tensors;
  for (int i = 0; i < 100; ++i) {
    tensors.push_back(Random({i + 1}, i % 2 == 0 ? at::kFloat : at::kDouble, 1 + i));
    handles.push_back(hvd::AllreduceAsync(
        tensors.back(), {.name = "tensor." + std::to_string(i), .op = hvd::Op::kSum}));
  }
  for (size_t i = 0; i < handles.size(); ++i) {
    HOLDS(at::equal(hvd::Synchronize(handles[i]), tensors[i] * hvd::Size()));
    HOLDS(hvd::Poll(handles[i]));
  }
}

// Submits in a different order on each rank. Names of one operation occur again, also with new
// sizes.
void OrderDiffers() {
  hvd::Init();
  for (int round = 0; round < 6; ++round) {
    const int64_t rows = round < 4 ? 8 : 5;
    at::manual_seed(static_cast<uint64_t>(hvd::Rank() + 17 * round));
    const Tensor order = at::randperm(20);
    std::map<int64_t, hvd::Handle> handles;
    for (int64_t i = 0; i < 20; ++i) {
      const int64_t number = order[i].item<int64_t>();
      handles.emplace(number,
                      hvd::AllreduceAsync(at::full({rows}, static_cast<double>(number)),
                                          {.name = std::to_string(number), .op = hvd::Op::kSum}));
    }
    for (const auto& [number, handle] : handles) {
      HOLDS(at::equal(hvd::Synchronize(handle),
                      at::full({rows}, static_cast<double>(number * hvd::Size()))));
    }
  }
}

void HorovodAllreduceError() {
  hvd::Init();
  if (hvd::Size() == 1) return;
  const Tensor other = at::ones({hvd::Rank() == 0 ? 2 : 3});
  CheckThrows([&] { hvd::Allreduce(other, {.name = "x"}); },
              "allreduce of 'x' does not fit: the shape is [2] on rank 0 and [3] on rank 1");
  CheckThrows(
      [&] { hvd::Allreduce(at::ones({2}).to(hvd::Rank() == 0 ? at::kFloat : at::kDouble)); },
      "the dtype is Float on rank 0 and Double on rank 1");
  CheckThrows([&] { hvd::Broadcast(at::ones({2}), hvd::Rank() % 2); }, "the root is 0 on rank 0");
  CheckThrows([&] { hvd::Allreduce(at::ones({2}, at::kBool)); }, "Bool cannot be reduced");
  HOLDS(at::equal(hvd::Allreduce(at::ones({2})), at::ones({2})));  // the ranks continue
}

// Rank 0's tensor is pending until the others submit theirs.
void HorovodAllreduceDuplicateNameError() {
  hvd::Init();
  if (hvd::Size() == 1) return;
  const hvd::ReduceOptions options = {.name = "duplicate_name", .op = hvd::Op::kSum};
  std::vector<hvd::Handle> first;
  if (hvd::Rank() == 0) {
    first.push_back(hvd::AllreduceAsync(at::ones({2}), options));
    CheckThrows([&] { hvd::AllreduceAsync(at::ones({2}), options); },
                "with the name 'duplicate_name' is under way already");
  }
  hvd::Barrier();
  const Tensor sum =
      hvd::Rank() == 0 ? hvd::Synchronize(first[0]) : hvd::Allreduce(at::ones({2}), options);
  HOLDS(sum[0].item<int>() == hvd::Size());
}

void HorovodGroupedAllreduce() {
  hvd::Init();
  std::vector<Tensor> tensors;
  for (uint64_t i = 0; i < 5; ++i) {
    tensors.push_back(Random({17, 2}, i < 3 ? at::kFloat : at::kLong, i + 3));
  }
  const std::vector<Tensor> sums = hvd::GroupedAllreduce(tensors, {.op = hvd::Op::kSum});
  const std::vector<Tensor> means = hvd::GroupedAllreduce(tensors);
  for (size_t i = 0; i < tensors.size(); ++i) {
    HOLDS(at::equal(sums[i], tensors[i] * hvd::Size()));
    HOLDS(at::allclose(means[i], tensors[i]));
  }
}

void HorovodGroupedAllreduceInplace() {
  hvd::Init();
  std::vector<Tensor> tensors;
  for (int i = 0; i < 4; ++i) tensors.push_back(at::full({i + 1}, hvd::Rank() + i, at::kDouble));
  hvd::SynchronizeGroup(hvd::GroupedAllreduceAsync_(tensors, {.op = hvd::Op::kSum}));
  for (int i = 0; i < 4; ++i) {
    const double sum = hvd::Size() * (hvd::Size() - 1) / 2.0 + i * hvd::Size();
    HOLDS(at::equal(tensors[static_cast<size_t>(i)], at::full({i + 1}, sum, at::kDouble)));
  }
}

void HorovodAllgatherVariableSize() {
  hvd::Init();
  for (const at::ScalarType dtype : kDtypes) {
    const int64_t rows = (hvd::Rank() * 7 + 3) % 5;
    const Tensor all = hvd::Allgather(at::full({rows, 3}, hvd::Rank(), dtype));
    int64_t start = 0;
    for (int rank = 0; rank < hvd::Size(); ++rank) {
      const int64_t of_rank = (rank * 7 + 3) % 5;
      HOLDS(at::equal(all.narrow(0, start, of_rank), at::full({of_rank, 3}, rank, dtype)));
      start += of_rank;
    }
    HOLDS(all.size(0) == start);
  }
}

void HorovodBroadcast() {
  hvd::Init();
  for (int root = 0; root < hvd::Size(); ++root) {
    for (const at::ScalarType dtype : {at::kFloat, at::kLong, at::kBool}) {
      const Tensor own = at::full({17, 3}, hvd::Rank() % 2, dtype);
      HOLDS(at::equal(hvd::Broadcast(own, root), at::full({17, 3}, root % 2, dtype)));
    }
  }
}

void HorovodBroadcastInplace() {
  hvd::Init();
  for (int root = 0; root < hvd::Size(); ++root) {
    Tensor own = at::full({4, 3}, hvd::Rank(), at::kDouble).t();
    hvd::Broadcast_(own, root);
    HOLDS(at::equal(own, at::full({3, 4}, root, at::kDouble)));
  }
  CheckThrows([] { hvd::Broadcast(at::ones({2}), hvd::Size()); },
              "is not among the ranks that take part");
}

// Covers Horovod's ..._zero_splits, ..._one_rank_sends_nothing and ..._one_rank_receives_nothing.
void HorovodAlltoallNothing() {
  hvd::Init();
  const int64_t size = hvd::Size(), rank = hvd::Rank();
  const std::vector<int64_t> none(static_cast<size_t>(size), 0);
  const auto nothing = hvd::Alltoall(at::empty({0, 2}), none);
  HOLDS(nothing.received.numel() == 0 && nothing.received_splits == none);
  // Rank 0 sends nothing.
  const std::vector<int64_t> one(static_cast<size_t>(size), 1);
  const auto from_others =
      hvd::Alltoall(at::full({rank == 0 ? 0 : size, 2}, rank), rank == 0 ? none : one);
  HOLDS(from_others.received.size(0) == size - 1);
  HOLDS(size == 1 || from_others.received[size - 2][0].item<int64_t>() == size - 1);
  HOLDS(from_others.received_splits[0] == 0);
  // Rank 0 receives nothing.
  std::vector<int64_t> not_to_0 = one;
  not_to_0[0] = 0;
  const auto received = hvd::Alltoall(at::full({size - 1, 2}, rank), not_to_0).received;
  HOLDS(received.size(0) == (rank == 0 ? 0 : size));
}

void HorovodAlltoall() {
  hvd::Init();
  const int64_t size = hvd::Size(), rank = hvd::Rank();
  std::vector<int64_t> splits;
  std::vector<Tensor> parts;
  for (int64_t to = 0; to < size; ++to) {
    splits.push_back(to + 1);
    parts.push_back(at::full({to + 1, 2}, rank * 100 + to, at::kInt));
  }
  const auto [received, received_splits] = hvd::Alltoall(at::cat(parts), splits);
  HOLDS(received_splits == std::vector<int64_t>(static_cast<size_t>(size), rank + 1));
  for (int64_t from = 0; from < size; ++from) {
    HOLDS(received[from * (rank + 1)][0].item<int>() == from * 100 + rank);
  }
  const Tensor equal = hvd::Alltoall(at::arange(size * 3) + 1000 * rank).received;
  HOLDS(equal.numel() == size * 3 && equal[0].item<int64_t>() == rank * 3);
  CheckThrows([&] { hvd::Alltoall(at::ones({size}), {1, 2, 3, 4, 5}); }, "add up to");
}

void HorovodJoinAllreduce() {
  hvd::Init();
  for (int first = 0; first < hvd::Size(); ++first) {
    for (const bool cached : {false, true}) {
      const Tensor a = Random({5, 5}, at::kFloat, 1234), b = Random({17}, at::kInt, 5);
      const auto reduce = [&](bool with_zeros) {
        const auto handle_a = hvd::AllreduceAsync(a, {.name = "tensor_a"});
        const auto handle_b = hvd::AllreduceAsync(b, {.name = "tensor_b", .op = hvd::Op::kSum});
        const int64_t counted = hvd::Size() - (with_zeros ? 1 : 0);
        HOLDS(at::allclose(hvd::Synchronize(handle_a),
                           a * static_cast<double>(counted) / hvd::Size()));
        HOLDS(at::equal(hvd::Synchronize(handle_b), b * counted));
      };
      if (cached) reduce(false);
      if (hvd::Rank() != first) reduce(hvd::Size() > 1);
      const int last = hvd::Join();
      HOLDS(hvd::Size() == 1 || last != first || hvd::Rank() < 0);
      const int same =
          hvd::Allreduce(at::full({1}, last, at::kInt), {.op = hvd::Op::kMax}).item<int>();
      HOLDS(same == last);
    }
  }
}

// Rank r has r + 1 batches. A rank without further batches contributes zeros.
void JoinUnevenData() {
  hvd::Init();
  for (int batch = 0; batch <= hvd::Rank(); ++batch) {
    const Tensor sum = hvd::Allreduce(at::ones({4}), {.name = "gradient", .op = hvd::Op::kSum});
    HOLDS(sum[0].item<int>() == hvd::Size() - batch);
  }
  HOLDS(hvd::Join() == hvd::Size() - 1);
}

void HorovodJoinAllgather() {
  hvd::Init();
  if (hvd::Size() > 1 && hvd::Rank() != 0) {
    CheckThrows([] { hvd::Allgather(at::ones({3}), {.name = "gathered"}); },
                "rank 0 has called Join, and takes part in reductions only");
  }
  hvd::Join();
}

void HorovodJoinBroadcast() {
  hvd::Init();
  if (hvd::Size() > 1 && hvd::Rank() != 0) {
    CheckThrows([] { hvd::Broadcast(at::ones({3}), 1, {.name = "broadcast"}); },
                "rank 0 has called Join, and takes part in reductions only");
  }
  hvd::Join();
}

template <class Optimizer, class Options>
void BroadcastStateOf(const Options& options) {
  auto model = MakeModel();
  Optimizer optimizer(model->parameters(), options);
  if (hvd::Rank() == 0) {
    for (const Batch& batch : MakeBatches(0, 1)) {
      optimizer.zero_grad();
      dslaunch::CrossEntropy(model->forward(batch.inputs), batch.targets).backward();
      optimizer.step();
    }
  } else {
    optimizer.param_groups()[0].options().set_lr(7);
  }
  hvd::BroadcastParameters(hvd::NamedParameters(*model), 0);
  hvd::BroadcastOptimizerState(optimizer, 0);
  HOLDS(optimizer.param_groups()[0].options().get_lr() == options.lr());
  // The following steps are the same on all ranks, without an exchange between them.
  for (const Batch& batch : MakeBatches(0, 1)) {
    optimizer.zero_grad();
    dslaunch::CrossEntropy(model->forward(batch.inputs), batch.targets).backward();
    optimizer.step();
  }
  for (const auto& [name, tensor] : hvd::NamedParameters(*model)) {
    HOLDS(at::equal(hvd::Broadcast(tensor, 0), tensor));
  }
}

void BroadcastState() {
  hvd::Init();
  BroadcastStateOf<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9));
  BroadcastStateOf<torch::optim::Adam>(torch::optim::AdamOptions(0.01).amsgrad(true));
  BroadcastStateOf<torch::optim::AdamW>(torch::optim::AdamWOptions(0.01));
  BroadcastStateOf<torch::optim::RMSprop>(torch::optim::RMSpropOptions(0.01).momentum(0.5));
  BroadcastStateOf<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.05));
}

// Checks that all options of the root's optimizer are broadcast, not only its learning rate.
void BroadcastStateOptions() {
  hvd::Init();
  const bool root = hvd::Rank() == 0;
  auto model = MakeModel();
  torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(root ? 0.2 : 0.1)
                                                 .momentum(root ? 0.9 : 0.8)
                                                 .weight_decay(root ? 0.1 : 0.2)
                                                 .nesterov(root));
  torch::optim::Adam adam(model->parameters(), torch::optim::AdamOptions(0.1)
                                                   .betas({root ? 0.8 : 0.9, root ? 0.88 : 0.99})
                                                   .eps(root ? 1e-4 : 1e-8)
                                                   .amsgrad(root));
  hvd::BroadcastOptimizerState(sgd, 0);
  hvd::BroadcastOptimizerState(adam, 0);
  const auto& of_sgd = static_cast<torch::optim::SGDOptions&>(sgd.param_groups()[0].options());
  HOLDS(of_sgd == torch::optim::SGDOptions(0.2).momentum(0.9).weight_decay(0.1).nesterov(true));
  const auto& of_adam = static_cast<torch::optim::AdamOptions&>(adam.param_groups()[0].options());
  HOLDS(of_adam == torch::optim::AdamOptions(0.1).betas({0.8, 0.88}).eps(1e-4).amsgrad(true));
}

// Checks that a frozen parameter is broadcast, and that its gradient is never exchanged.
void BroadcastStateNoGrad() {
  hvd::Init();
  auto model = MakeModel();
  {
    const at::NoGradGuard no_grad;
    model->fc1->weight.fill_(hvd::Rank() + 1);
  }
  model->fc1->weight.set_requires_grad(false);
  auto sgd = MakeSgd(*model);
  hvd::DistributedOptimizer optimizer(sgd, hvd::NamedParameters(*model));
  hvd::BroadcastParameters(hvd::NamedParameters(*model), 0);
  hvd::BroadcastOptimizerState(*sgd, 0);
  HOLDS(model->fc1->weight.min().item<double>() == 1);
  HOLDS(model->fc1->weight.max().item<double>() == 1);
  const Batch batch = MakeBatches(hvd::Rank(), hvd::Size())[0];
  dslaunch::CrossEntropy(model->forward(batch.inputs), batch.targets).backward();
  optimizer.Step();
  HOLDS(!model->fc1->weight.grad().defined() && model->fc1->weight.max().item<double>() == 1);
  HOLDS(model->fc1->bias.grad().defined());
}

void CompressionFp16() {
  hvd::Init();
  for (const auto compression : {hvd::Compression::kFp16, hvd::Compression::kBf16}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kLong}) {
      const Tensor tensor = Random({5, 5}, dtype, 3);  // whole numbers, which are exact in 16 bits
      const Tensor sum = hvd::Allreduce(tensor, {.op = hvd::Op::kSum, .compression = compression});
      HOLDS(sum.scalar_type() == dtype && at::equal(sum, tensor * hvd::Size()));
    }
  }
  // 2049 is not representable in 16 bits, so the result shows the 16-bit transfer.
  const Tensor odd = at::full({1}, 2049.0);
  HOLDS(hvd::Allreduce(odd, {.compression = hvd::Compression::kFp16})[0].item<double>() == 2048);
}

void NoNamedParameters() {
  hvd::Init();
  auto model = MakeModel();
  hvd::DistributedOptimizer optimizer(MakeSgd(*model), {});
  const Batch batch = MakeBatches(hvd::Rank(), hvd::Size())[0];
  dslaunch::CrossEntropy(model->forward(batch.inputs), batch.targets).backward();
  optimizer.Step();
  for (const Tensor& parameter : model->parameters()) {
    HOLDS(at::equal(hvd::Broadcast(parameter, 0), parameter));
  }
}

void DuplicateNames() {
  hvd::Init();
  auto model = MakeModel();
  auto named = hvd::NamedParameters(*model);
  named.push_back(named[0]);
  CheckThrows([&] { hvd::DistributedOptimizer(MakeSgd(*model), named); },
              "several tensors named fc1.weight");
  named = hvd::NamedParameters(*model);
  named.pop_back();
  CheckThrows([&] { hvd::DistributedOptimizer(MakeSgd(*model), named); },
              "lacks parameters that the optimizer has; GROUP.POSITION of them: 0.3 (shape [10])");
}

void GradientClipping() {
  hvd::Init();
  const Tensor x = at::ones({1, 1}) * (hvd::Rank() + 1);
  torch::nn::Linear model(1, 1);
  auto sgd = std::make_shared<torch::optim::SGD>(model->parameters(), 0.1);
  hvd::DistributedOptimizer optimizer(sgd, hvd::NamedParameters(*model));
  hvd::BroadcastParameters(hvd::NamedParameters(*model), 0);
  const Tensor before = model->weight.detach().clone();
  model->forward(x).sum().backward();
  optimizer.Synchronize();
  const double weight_gradient = (hvd::Size() + 1) / 2.0;
  const double norm = torch::nn::utils::clip_grad_norm_(model->parameters(), 0.1);
  HOLDS(std::abs(norm - std::sqrt(weight_gradient * weight_gradient + 1)) < 1e-5);
  {
    const auto skip = optimizer.SkipSynchronize();
    optimizer.Step();
  }
  HOLDS(std::abs((model->weight - before).item<double>() + 0.1 * 0.1 * weight_gradient / norm) <
        1e-6);
  CheckThrows(
      [&] {
        const auto skip = optimizer.SkipSynchronize();
        optimizer.Step();
      },
      "without Synchronize before it");
}

void BackwardPassesPerStep() {
  hvd::Init();
  torch::nn::Linear model(1, 1);
  auto sgd = std::make_shared<torch::optim::SGD>(model->parameters(), 0.1);
  hvd::DistributedOptimizer optimizer(sgd, hvd::NamedParameters(*model),
                                      {.backward_passes_per_step = 2});
  const Tensor x = at::ones({1, 1}) * (hvd::Rank() + 1);
  for (int step = 0; step < 2; ++step) {
    model->forward(x).sum().backward();
    optimizer.ZeroGrad();  // no gradient is sent yet
    model->forward(x).sum().backward();
    if (step == 1) CheckThrows([&] { model->forward(x).sum().backward(); }, "more backward passes");
    CheckThrows([&] { optimizer.ZeroGrad(); }, "gradients travel");
    optimizer.Synchronize();
    HOLDS(std::abs(model->weight.grad().item<double>() - (hvd::Size() + 1) / 2.0) < 1e-5 ||
          step == 1);
    const auto skip = optimizer.SkipSynchronize();
    optimizer.Step();
    optimizer.ZeroGrad();
  }
}

// Covers a parameter without a gradient on some ranks.
void DynamicRequiresGrad() {
  hvd::Init();
  auto a = std::make_shared<torch::nn::LinearImpl>(2, 2),
       b = std::make_shared<torch::nn::LinearImpl>(2, 2);
  std::vector<dslaunch::NamedTensor> named;
  for (const auto& [name, tensor] : hvd::NamedParameters(*a))
    named.push_back({"a." + name, tensor});
  for (const auto& [name, tensor] : hvd::NamedParameters(*b))
    named.push_back({"b." + name, tensor});
  std::vector<Tensor> all;
  for (const auto& item : named) all.push_back(item.tensor);
  hvd::DistributedOptimizer optimizer(std::make_shared<torch::optim::SGD>(all, 0.1), named);
  auto& used = hvd::Rank() == 0 ? a : b;
  used->forward(at::ones({1, 2})).sum().backward();
  optimizer.Synchronize();
  HOLDS(std::abs(a->bias.grad()[0].item<double>() - 1.0 / hvd::Size()) < 1e-6);
  HOLDS(std::abs(b->bias.grad()[0].item<double>() - (hvd::Size() - 1.0) / hvd::Size()) < 1e-6);
}

void ProcessSets() {
  hvd::Init();
  if (hvd::Size() == 1) return;
  std::vector<int> even, odd;
  for (int rank = 0; rank < hvd::Size(); ++rank) (rank % 2 == 0 ? even : odd).push_back(rank);
  const hvd::ProcessSet evens = hvd::AddProcessSet(even), odds = hvd::AddProcessSet(odd);
  const hvd::ProcessSet& own = hvd::Rank() % 2 == 0 ? evens : odds;
  const hvd::ProcessSet& other = hvd::Rank() % 2 == 0 ? odds : evens;
  HOLDS(own.Included() && !other.Included() && own.Rank() == hvd::Rank() / 2);
  const Tensor sum = hvd::Allreduce(at::full({3}, hvd::Rank()),
                                    {.name = "x", .op = hvd::Op::kSum, .process_set = own});
  int expected = 0;
  for (const int rank : own.ranks()) expected += rank;
  HOLDS(sum[0].item<int>() == expected);
  const int root = own.ranks().back();
  HOLDS(hvd::Broadcast(at::full({1}, hvd::Rank()), root, {.process_set = own}).item<int>() == root);
  CheckThrows([&] { hvd::Allreduce(at::ones({1}), {.process_set = other}); },
              "is not in the process set");
  hvd::Barrier(own);
  torch::nn::Linear model(1, 1);
  hvd::DistributedOptimizer optimizer(std::make_shared<torch::optim::SGD>(model->parameters(), 0.1),
                                      hvd::NamedParameters(*model), {.process_set = own});
  model->forward(at::ones({1, 1}) * (hvd::Rank() + 1)).sum().backward();
  optimizer.Synchronize();
  const double mean = static_cast<double>(expected + own.Size()) / own.Size();
  HOLDS(std::abs(model->weight.grad().item<double>() - mean) < 1e-5);
  hvd::RemoveProcessSet(evens);
  hvd::RemoveProcessSet(odds);
  CheckThrows([&] { hvd::Allreduce(at::ones({1}), {.process_set = own}); }, "was removed");
  CheckThrows([&] { hvd::AddProcessSet({0, hvd::Rank() == 0 ? 1 : 0}); }, "");
}

// Tests each exchange within sets that are active at the same time, with names that both sets use.
void ProcessSetsOfEachExchange() {
  hvd::Init();
  if (hvd::Size() < 3) return;
  std::vector<int> low, high;
  for (int rank = 0; rank < hvd::Size(); ++rank) (rank < 2 ? low : high).push_back(rank);
  const hvd::ProcessSet lows = hvd::AddProcessSet(low), highs = hvd::AddProcessSet(high);
  const hvd::ProcessSet& own = hvd::Rank() < 2 ? lows : highs;
  const std::vector<int> ranks = own.ranks();
  const auto size = static_cast<int64_t>(ranks.size());
  double sum = 0;
  for (const int rank : ranks) sum += rank;
  const Tensor mine = at::full({2}, hvd::Rank(), at::kDouble);
  const auto grouped = hvd::GroupedAllreduce(
      {mine, mine * 2}, {.name = "group", .op = hvd::Op::kSum, .process_set = own});
  HOLDS(grouped[0][0].item<double>() == sum && grouped[1][0].item<double>() == 2 * sum);
  const Tensor all = hvd::Allgather(mine.view({1, 2}), {.name = "all", .process_set = own});
  HOLDS(all.size(0) == size);
  for (int64_t i = 0; i < size; ++i) {
    HOLDS(all[i][0].item<int>() == ranks[static_cast<size_t>(i)]);
  }
  const Tensor received =
      hvd::Alltoall(at::full({size}, hvd::Rank()), {}, {.name = "to_all", .process_set = own})
          .received;
  HOLDS(at::equal(received, all.select(1, 0).to(received.scalar_type())));
  hvd::Barrier();
}

void Stall() {
  hvd::Init({.stall_warning = std::chrono::milliseconds(300),
             .stall_shutdown = std::chrono::milliseconds(1500)});
  if (hvd::Rank() == 1) {
    std::this_thread::sleep_for(std::chrono::seconds(3));
    return;
  }
  CheckThrows([] { hvd::Allreduce(at::ones({2}), {.name = "never"}); },
              "rank 1 has not submitted 'never' (allreduce)");
}

void RankThrows() {
  hvd::Init();
  hvd::Barrier();
  if (hvd::Rank() == 1) throw std::runtime_error("enough");
  hvd::Allreduce(at::ones({2}), {.name = "lost"});
}

void Places() {
  hvd::Init();
  HOLDS(hvd::IsInitialized() && hvd::LocalSize() <= hvd::Size());
  std::printf("rank %d/%d local %d/%d cross %d/%d\n", hvd::Rank(), hvd::Size(), hvd::LocalRank(),
              hvd::LocalSize(), hvd::CrossRank(), hvd::CrossSize());
  hvd::Barrier();
  hvd::Shutdown();
  HOLDS(!hvd::IsInitialized());
  CheckThrows([] { hvd::Rank(); }, "call dslaunch::horovod::Init() first");
}

// Returns how often each sample occurs in the ranks' parts, which have equal sizes.
Tensor TimesTaken(const hvd::elastic::ElasticSampler& sampler, int64_t samples) {
  const Tensor mine = at::tensor(sampler.Indices(), at::kLong);
  const Tensor all = hvd::Allgather(mine, {.name = "indices"});
  HOLDS(all.numel() == mine.numel() * hvd::Size());
  return at::bincount(all, {}, samples);
}

Tensor RecordedByAll(const hvd::elastic::ElasticSampler& sampler) {
  return hvd::Allreduce(sampler.Processed(), {.name = "processed", .op = hvd::Op::kMax});
}

void ElasticSampler() {
  hvd::Init();
  constexpr int64_t kSamples = 23;
  const int64_t size = hvd::Size();
  const auto extra = [&](int64_t left) { return (left + size - 1) / size * size - left; };
  hvd::elastic::ElasticSampler sampler(kSamples, {.seed = 5});
  Tensor times = TimesTaken(sampler, kSamples);
  HOLDS(times.min().item<int64_t>() == 1);
  HOLDS(times.sum().item<int64_t>() == kSamples + extra(kSamples));
  const std::vector<int64_t> first_epoch = sampler.Indices();
  HOLDS(sampler.Batches(2) == (static_cast<int64_t>(first_epoch.size()) + 1) / 2);
  HOLDS(sampler.GetIndices(0, 2) == std::vector<int64_t>({first_epoch[0], first_epoch[1]}));
  HOLDS(sampler.GetIndices(sampler.Batches(2), 2).empty());

  // After a reset, the ranks share the remaining samples.
  sampler.RecordBatch(1, 2);
  HOLDS(sampler.Indices() == first_epoch);
  const Tensor processed = RecordedByAll(sampler);
  HOLDS(processed.sum().item<int64_t>() == 2 * size);
  sampler.Load(0, processed);
  times = TimesTaken(sampler, kSamples);
  HOLDS(at::equal(times.eq(0), processed.ne(0)));
  HOLDS(times.sum().item<int64_t>() == kSamples - 2 * size + extra(kSamples - 2 * size));

  // One sample is left for all ranks, and then none.
  Tensor all_but_7 = at::ones({kSamples}, at::kByte);
  all_but_7[7] = 0;
  sampler.Load(0, all_but_7);
  HOLDS(sampler.Indices() == std::vector<int64_t>({7}));
  sampler.Load(0, at::ones({kSamples}, at::kByte));
  HOLDS(sampler.Indices().empty() && sampler.Batches(2) == 0);

  sampler.SetEpoch(1);
  HOLDS(sampler.epoch() == 1 && sampler.Processed().sum().item<int64_t>() == 0);
  HOLDS(sampler.Indices() != first_epoch);
  sampler.SetEpoch(0);
  HOLDS(sampler.Indices() == first_epoch);
  HOLDS(hvd::elastic::ElasticSampler(kSamples, {.seed = 6}).Indices() != first_epoch);
  const hvd::elastic::ElasticSampler in_order(kSamples, {.shuffle = false});
  HOLDS(in_order.GetIndices(0, 2) == std::vector<int64_t>({hvd::Rank(), hvd::Rank() + size}));

  CheckThrows([&] { sampler.RecordIndices({kSamples}); }, "there is no sample 23");
  CheckThrows([&] { sampler.RecordBatch(-1, 2); }, "batches are counted from 0");
  CheckThrows([&] { sampler.Load(0, at::zeros({kSamples + 1}, at::kByte)); }, "uint8 [23]");
  CheckThrows([] { hvd::elastic::ElasticSampler none(0); }, "0 samples");
}

void ReplicatorPrimitives() {
  const auto group = dslaunch::InitProcessGroup();
  const dslaunch::ReplicaContext replica(group);
  const int n = replica.num_replicas(), id = replica.replica_id();
  Tensor x = at::full({2}, id + 1.0).requires_grad_();
  // Each replica's loss is (id + 1) times the sum of all x. So each x gets the sum of these
  // factors.
  const Tensor sum = replica.AllSum(x);
  HOLDS(sum[0].item<double>() == n * (n + 1) / 2);
  (sum.sum() * (id + 1)).backward();
  HOLDS(x.grad()[0].item<double>() == n * (n + 1) / 2);
  HOLDS(std::abs(replica.AllReduce(x, dslaunch::ReduceOp::kAverage)[0].item<double>() -
                 (n + 1) / 2.0) < 1e-6);
  HOLDS(replica.AllReduce(x, dslaunch::ReduceOp::kMax)[0].item<double>() == n);
  Tensor y = at::full({2}, id + 1.0).requires_grad_();
  const Tensor all = replica.AllGather(y);
  HOLDS(all.size(0) == n && all[n - 1][0].item<double>() == n);
  (all[0].sum() * 3).backward();  // every replica uses only replica 0's tensor
  HOLDS(y.grad()[0].item<double>() == (id == 0 ? 3 * n : 0));
  Tensor z = at::full({2}, id + 1.0).requires_grad_();
  const Tensor last = replica.Broadcast(z, n - 1);
  HOLDS(last[0].item<double>() == n);
  last.sum().backward();
  HOLDS(z.grad()[0].item<double>() == (id == n - 1 ? n : 0));
  const Tensor rows = at::arange(24, at::kDouble).view({12, 2});
  const auto square = [](const Tensor& part) { return part.square(); };
  HOLDS(at::equal(replica.MapGather(square, rows), rows.square()));
  const auto total = [](const Tensor& part) { return part.square().sum(); };
  HOLDS(replica.MapReduce(total, rows).item<double>() == rows.square().sum().item<double>());
  HOLDS(replica.Map(square, rows).size(0) == 12 / n);
  HOLDS(dslaunch::InputContext(0, 4).PerReplicaBatchSize(12) == 3);
  CheckThrows([] { dslaunch::InputContext(0, 4).PerReplicaBatchSize(10); }, "global batch size 10");
}

const std::map<std::string, std::function<void()>>& Cases() {
  static const std::map<std::string, std::function<void()>> kCases = {
      {"config", TrainByConfig},
      {"engine", [] { TrainByEngine(""); }},
      {"zero1", [] { TrainByEngine(R"("zero_optimization": {"stage": 1}, )"); }},
      {"zero3", [] { TrainByEngine(R"("zero_optimization": {"stage": 3}, )"); }},
      {"server_1", [] { TrainByEngine(R"("parallel": {"mode": "parameter_server"}, )"); }},
      {"server_all", TrainByServers},
      {"data_parallel_1", [] { TrainByDataParallel(1); }},
      {"data_parallel_3", [] { TrainByDataParallel(3); }},
      {"horovod", [] { TrainByHorovod({}); }},
      {"horovod_predivide", [] { TrainByHorovod({.gradient_predivide_factor = 2}); }},
      {"horovod_groups", [] { TrainByHorovod({.num_groups = 2}); }},
      {"horovod_fp16", [] { TrainByHorovod({.compression = hvd::Compression::kFp16}); }},
      {"horovod_bf16", [] { TrainByHorovod({.compression = hvd::Compression::kBf16}); }},
      {"replicator", TrainByReplicator},
      {"test_horovod_allreduce", HorovodAllreduce},
      {"test_horovod_allreduce_average", HorovodAllreduceAverage},
      {"test_horovod_allreduce_product", HorovodAllreduceProduct},
      {"test_horovod_allreduce_prescale", HorovodAllreducePrescale},
      {"test_horovod_allreduce_async_fused", HorovodAllreduceAsyncFused},
      {"order_differs", OrderDiffers},
      {"test_horovod_allreduce_error", HorovodAllreduceError},
      {"test_horovod_allreduce_duplicate_name_error", HorovodAllreduceDuplicateNameError},
      {"test_horovod_grouped_allreduce", HorovodGroupedAllreduce},
      {"test_horovod_grouped_allreduce_inplace", HorovodGroupedAllreduceInplace},
      {"test_horovod_allgather_variable_size", HorovodAllgatherVariableSize},
      {"test_horovod_broadcast", HorovodBroadcast},
      {"test_horovod_broadcast_inplace", HorovodBroadcastInplace},
      {"test_horovod_alltoall", HorovodAlltoall},
      {"test_horovod_alltoall_zero_splits", HorovodAlltoallNothing},
      {"test_horovod_join_allreduce", HorovodJoinAllreduce},
      {"join_uneven_data", JoinUnevenData},
      {"test_horovod_join_allgather", HorovodJoinAllgather},
      {"test_horovod_join_broadcast", HorovodJoinBroadcast},
      {"test_broadcast_state", BroadcastState},
      {"test_broadcast_state_options", BroadcastStateOptions},
      {"test_broadcast_state_no_grad", BroadcastStateNoGrad},
      {"test_compression_fp16", CompressionFp16},
      {"test_no_named_parameters", NoNamedParameters},
      {"test_duplicate_names", DuplicateNames},
      {"test_gradient_clipping", GradientClipping},
      {"backward_passes_per_step", BackwardPassesPerStep},
      {"test_dynamic_requires_grad", DynamicRequiresGrad},
      {"elastic_sampler", ElasticSampler},
      {"process_sets", ProcessSets},
      {"test_horovod_process_sets", ProcessSetsOfEachExchange},
      {"stall", Stall},
      {"rank_throws", RankThrows},
      {"places", Places},
      {"replicator_primitives", ReplicatorPrimitives},
  };
  return kCases;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 64;
  const auto& run = Cases().at(argv[1]);
  const int ranks = std::atoi(argv[2]);
  return dslaunch::Main([&] {
    if (ranks == 0) return run();
    dslaunch::Spawn(ranks, [&](int) {
      run();
      hvd::Shutdown();
    });
  });
}
