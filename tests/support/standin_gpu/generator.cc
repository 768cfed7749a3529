#include "tests/support/standin_gpu/generator.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <c10/core/GeneratorImpl.h>

#include <atomic>
#include <cstring>
#include <vector>

#include "tests/support/standin_gpu/streams.h"

namespace dslaunch::standin {
namespace {

constexpr uint64_t kDrawn = 4;  // numbers drawn per operation; the smallest amount that CUDA counts

class DeviceGenerator final : public c10::GeneratorImpl {
 public:
  explicit DeviceGenerator(c10::DeviceIndex device)
      : c10::GeneratorImpl(c10::Device(kDeviceType, device),
                           c10::DispatchKeySet(c10::DispatchKey::CUDA)) {}

  void set_current_seed(uint64_t seed) override {
    seed_ = seed;
    offset_ = 0;
  }
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return seed_;
  }
  void set_state(const c10::TensorImpl& state) override {
    uint64_t values[2];
    TORCH_CHECK(state.numel() == sizeof values, "a state of another kind of generator");
    std::memcpy(values, state.data(), sizeof values);
    seed_ = values[0];
    offset_ = values[1];
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    const uint64_t values[] = {seed_, offset_};
    const at::Tensor state = at::detail::empty_cpu({sizeof values}, at::kByte);
    std::memcpy(state.mutable_data_ptr(), values, sizeof values);
    return state.getIntrusivePtr();
  }

  uint64_t Draw() {
    // Uses the finalizer of SplitMix64, because it turns seeds that differ in one bit into
    // unrelated values.
    uint64_t x = seed_ + 0x9e3779b97f4a7c15ull * (offset_.fetch_add(kDrawn) + 1);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
  }

 private:
  DeviceGenerator* clone_impl() const override {
    auto* const copy = new DeviceGenerator(device_.index());
    copy->seed_ = seed_.load();
    copy->offset_ = offset_.load();
    return copy;
  }

  std::atomic<uint64_t> seed_ = c10::default_rng_seed_val;
  std::atomic<uint64_t> offset_ = 0;
};

c10::DeviceIndex IndexOr(c10::DeviceIndex device) { return device < 0 ? CurrentDevice() : device; }

}  // namespace

const at::Generator& DefaultGenerator(c10::DeviceIndex device) {
  static const auto* const generators = [] {
    auto* const made = new std::vector<at::Generator>;
    for (int i = 0; i < kMaxDevices; ++i)
      made->push_back(NewGenerator(static_cast<c10::DeviceIndex>(i)));
    return made;
  }();
  return generators->at(static_cast<size_t>(IndexOr(device)));
}

at::Generator NewGenerator(c10::DeviceIndex device) {
  return at::make_generator<DeviceGenerator>(IndexOr(device));
}

uint64_t DrawSeed(c10::GeneratorImpl* given, c10::DeviceIndex device) {
  c10::GeneratorImpl* const chosen =
      given != nullptr ? given : DefaultGenerator(device).unsafeGetGeneratorImpl();
  return static_cast<DeviceGenerator*>(chosen)->Draw();
}

}  // namespace dslaunch::standin
