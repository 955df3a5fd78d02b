#pragma once

namespace openreg {

/// Membership in one IntrusiveList.
template <class T>
struct ListLink {
  T* previous = nullptr;
  T* next = nullptr;
};

/// A FIFO whose links lie in its elements: nothing is allocated, so nothing can fail, and removing
/// an element from the middle takes constant time. It owns nothing. Not thread safe.
template <class T, ListLink<T> T::*kLink>
class IntrusiveList {
 public:
  bool empty() const noexcept { return first_ == nullptr; }
  T* front() const noexcept { return first_; }
  static T* next(const T& element) noexcept { return (element.*kLink).next; }

  void push_back(T& element) noexcept {
    (element.*kLink) = {last_, nullptr};
    (last_ ? (last_->*kLink).next : first_) = &element;
    last_ = &element;
  }

  /// `element` must be in this list.
  void remove(T& element) noexcept {
    const ListLink<T> link = element.*kLink;
    (link.previous ? (link.previous->*kLink).next : first_) = link.next;
    (link.next ? (link.next->*kLink).previous : last_) = link.previous;
    (element.*kLink) = {};
  }

  /// Removes and returns the first element; null if the list is empty.
  T* pop_front() noexcept {
    T* const element = first_;
    if (element) remove(*element);
    return element;
  }

 private:
  T* first_ = nullptr;
  T* last_ = nullptr;
};

}  // namespace openreg
