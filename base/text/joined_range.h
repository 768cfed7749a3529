// Iterates over the participants of an array that have joined. Replaces std::views::filter, which
// the fuzzers' compiler (clang 14) does not support.
#pragma once

#include <cstddef>
#include <type_traits>

namespace dslaunch {

// A range of the participants in an array that have joined. `Participant` may be const and must
// have a member has_joined. The array must outlive the range.
template <class Participant>
class JoinedRange {
 public:
  class Iterator {
   public:
    using value_type = std::remove_const_t<Participant>;
    using difference_type = std::ptrdiff_t;

    Iterator() = default;
    Iterator(Participant* at, Participant* end) : at_(at), end_(end) { Skip(); }
    Participant& operator*() const { return *at_; }
    Iterator& operator++() {
      ++at_;
      Skip();
      return *this;
    }
    Iterator operator++(int) {
      const Iterator before = *this;
      ++*this;
      return before;
    }
    bool operator==(const Iterator&) const = default;

   private:
    void Skip() {
      while (at_ != end_ && !at_->has_joined) ++at_;
    }

    Participant* at_ = nullptr;
    Participant* end_ = nullptr;
  };

  JoinedRange(Participant* participants, size_t size)
      : begin_(participants), end_(participants + size) {}
  Iterator begin() const { return {begin_, end_}; }
  Iterator end() const { return {end_, end_}; }

 private:
  Participant* begin_;
  Participant* end_;
};

}  // namespace dslaunch
