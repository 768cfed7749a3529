// Those of an array of attendees who have joined, as std::views::filter would give them: clang 14,
// with which the fuzzers are built, does not compile that.
#pragma once

#include <cstddef>
#include <type_traits>

namespace dslaunch {

// `Attendee` may be const; it has a member has_joined. The array stays where it is.
template <class Attendee>
class JoinedRange {
 public:
  class Iterator {
   public:
    using value_type = std::remove_const_t<Attendee>;
    using difference_type = std::ptrdiff_t;

    Iterator() = default;
    Iterator(Attendee* at, Attendee* end) : at_(at), end_(end) { Skip(); }
    Attendee& operator*() const { return *at_; }
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

    Attendee* at_ = nullptr;
    Attendee* end_ = nullptr;
  };

  JoinedRange(Attendee* attendees, size_t size) : begin_(attendees), end_(attendees + size) {}
  Iterator begin() const { return {begin_, end_}; }
  Iterator end() const { return {end_, end_}; }

 private:
  Attendee* begin_;
  Attendee* end_;
};

}  // namespace dslaunch
