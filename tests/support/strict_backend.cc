#include "tests/support/strict_backend.h"

#include <c10/util/Exception.h>

#include <sstream>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace dslaunch {
namespace {

constexpr int kFirstTag = 1 << 28;  // greater than all other tags

std::string ToText(const StrictBackend::Operation& operation) {
  return operation.name + " " + std::to_string(operation.bytes) + " " + operation.dtype;
}

std::vector<std::string> Lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

void ExpectSame(const std::vector<std::string>& one, const std::vector<std::string>& other,
                const std::string& who) {
  for (size_t i = 0; i < std::max(one.size(), other.size()); ++i) {
    const std::string left = i < one.size() ? one[i] : "nothing";
    const std::string right = i < other.size() ? other[i] : "nothing";
    if (left != right) {
      throw std::runtime_error(who + " differ in operation " + std::to_string(i + 1) + ": " + left +
                               " and " + right);
    }
  }
}

}  // namespace

// The sequence of messages between two ranks. The n-th operation of one rank matches the n-th
// operation of the other. If both send, or both receive, neither operation completes.
struct StrictBackend::Row {
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  size_t over = 0;  // number of completed works
};

class StrictBackend::RowWork : public c10d::Work {
 public:
  RowWork(std::shared_ptr<Row> row, size_t index, c10d::OpType type)
      : Work(-1, type), row_(std::move(row)), index_(index) {}

  bool wait(std::chrono::milliseconds) override {
    for (; row_->over <= index_; ++row_->over) {
      if (!row_->works[row_->over]->wait(kPatience)) return false;
      row_->works[row_->over].reset();
    }
    return true;
  }

 private:
  std::shared_ptr<Row> row_;
  size_t index_;
};

c10::intrusive_ptr<StrictBackend> StrictBackend::Install(const ProcessGroup& group) {
  c10d::ProcessGroup& c10d_group = *group.c10d_group();
  auto strict = c10::make_intrusive<StrictBackend>(c10d_group.getBackend(c10::DeviceType::CPU));
  // Uses a type for which the group has no backend, because otherwise the group would keep using
  // the existing backend.
  c10d_group.setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::UCC, strict);
  return strict;
}

StrictBackend::StrictBackend(c10::intrusive_ptr<c10d::Backend> inner)
    : Backend(inner->getRank(), inner->getSize()),
      inner_(std::move(inner)),
      rows_(static_cast<size_t>(getSize())) {
  for (auto& row : rows_) row = std::make_shared<Row>();
}

void StrictBackend::Compare(const ProcessGroup& group) const {
  const std::string key = group.NewKey("strict");
  const auto name = [&](int rank, int peer) {
    return key + std::to_string(rank) + "/" + std::to_string(peer);
  };
  const auto tell = [&](int peer, const std::string& text) {
    group.store()->set(name(getRank(), peer), std::vector<uint8_t>(text.begin(), text.end()));
  };
  const auto ask = [&](int rank, int peer) {
    const std::vector<uint8_t> value = group.store()->get(name(rank, peer));
    return Lines(std::string(value.begin(), value.end()));
  };
  for (int peer = -1; peer < getSize(); ++peer) {  // -1 compares the collectives
    std::string text;
    for (const Operation& operation : operations_) {
      if (operation.peer == peer) text += ToText(operation) + "\n";
    }
    tell(peer, text);
  }
  for (int peer = 0; peer < getSize(); ++peer) {
    if (peer == getRank()) continue;
    const std::string who = "ranks " + std::to_string(getRank()) + " and " + std::to_string(peer);
    ExpectSame(ask(getRank(), -1), ask(peer, -1), "the collectives of " + who);
    std::vector<std::string> mirrored;
    for (Operation operation : operations_) {
      if (operation.peer != peer) continue;
      operation.name = operation.name == "send" ? "recv" : "send";
      mirrored.push_back(ToText(operation));
    }
    ExpectSame(mirrored, ask(peer, getRank()), "the messages of " + who);
  }
}

void StrictBackend::Note(const char* name, const at::Tensor& tensor, int peer) {
  operations_.push_back(
      {name, peer, static_cast<int64_t>(tensor.nbytes()), c10::toString(tensor.scalar_type())});
}

c10::intrusive_ptr<c10d::Work> StrictBackend::Append(int peer, c10d::OpType type,
                                                     std::vector<at::Tensor>& tensors) {
  const bool sends = type == c10d::OpType::SEND;
  Note(sends ? "send" : "recv", tensors.at(0), peer);
  const std::shared_ptr<Row>& row = rows_.at(static_cast<size_t>(peer));
  const size_t index = row->works.size();
  const int tag = kFirstTag + static_cast<int>(index);
  row->works.push_back(sends ? inner_->send(tensors, peer, tag) : inner_->recv(tensors, peer, tag));
  return c10::make_intrusive<RowWork>(row, index, type);
}

c10::intrusive_ptr<c10d::Work> StrictBackend::send(std::vector<at::Tensor>& tensors, int to, int) {
  return Append(to, c10d::OpType::SEND, tensors);
}
c10::intrusive_ptr<c10d::Work> StrictBackend::recv(std::vector<at::Tensor>& tensors, int from,
                                                   int) {
  return Append(from, c10d::OpType::RECV, tensors);
}

c10::intrusive_ptr<c10d::Work> StrictBackend::broadcast(std::vector<at::Tensor>& tensors,
                                                        const c10d::BroadcastOptions& options) {
  Note("broadcast", tensors.at(0));
  return inner_->broadcast(tensors, options);
}
c10::intrusive_ptr<c10d::Work> StrictBackend::allreduce(std::vector<at::Tensor>& tensors,
                                                        const c10d::AllreduceOptions& options) {
  Note("allreduce", tensors.at(0));
  return inner_->allreduce(tensors, options);
}
c10::intrusive_ptr<c10d::Work> StrictBackend::allgather(
    std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
    const c10d::AllgatherOptions& options) {
  Note("allgather", inputs.at(0));
  return inner_->allgather(outputs, inputs, options);
}
c10::intrusive_ptr<c10d::Work> StrictBackend::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  Note("reduce_scatter", input);
  return inner_->_reduce_scatter_base(output, input, options);
}

c10::intrusive_ptr<c10d::Work> StrictBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                            std::vector<int64_t>& output_sizes,
                                                            std::vector<int64_t>& input_sizes,
                                                            const c10d::AllToAllOptions& options) {
  Note("alltoall", input);
  return inner_->alltoall_base(output, input, output_sizes, input_sizes, options);
}
c10::intrusive_ptr<c10d::Work> StrictBackend::barrier(const c10d::BarrierOptions& options) {
  operations_.push_back({.name = "barrier", .dtype = ""});
  return inner_->barrier(options);
}

}  // namespace dslaunch
