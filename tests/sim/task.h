// Stores a callable to be run later. It is moved, never copied, and stored in place: a simulated
// run makes thousands of tasks, so a task must not allocate memory.
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

namespace dslaunch::sim {

class Task {
 public:
  Task() = default;
  template <class Act>
  requires(!std::is_same_v<std::remove_cvref_t<Act>, Task>)
      Task(Act&& act) {  // NOLINT(google-explicit-constructor): every lambda converts
    using Kept = std::remove_cvref_t<Act>;
    static_assert(sizeof(Kept) <= kSize && alignof(Kept) <= alignof(std::max_align_t));
    ::new (static_cast<void*>(place_)) Kept(std::forward<Act>(act));
    use_ = [](Use use, void* self, void* other) {
      Kept& kept = *static_cast<Kept*>(self);
      if (use == Use::kCall) return kept();
      if (use == Use::kMoveTo) ::new (other) Kept(std::move(kept));
      kept.~Kept();
    };
  }
  Task(Task&& other) noexcept { TakeFrom(other); }
  Task& operator=(Task&& other) noexcept {
    if (this == &other) return *this;
    Drop();
    TakeFrom(other);
    return *this;
  }
  ~Task() { Drop(); }

  void operator()() { use_(Use::kCall, place_, nullptr); }

 private:
  static constexpr size_t kSize = 104;  // enough for a message and its receiver
  enum class Use { kCall, kMoveTo, kDrop };

  void TakeFrom(Task& other) {
    use_ = std::exchange(other.use_, nullptr);
    if (use_ != nullptr) use_(Use::kMoveTo, other.place_, place_);
  }
  void Drop() {
    if (use_ != nullptr) std::exchange(use_, nullptr)(Use::kDrop, place_, nullptr);
  }

  alignas(std::max_align_t) std::byte place_[kSize];
  void (*use_)(Use, void* self, void* other) = nullptr;
};

}  // namespace dslaunch::sim
