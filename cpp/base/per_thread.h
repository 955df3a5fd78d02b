#pragma once

namespace openreg {

/// The calling thread's object of a type, made at first use, which may throw std::bad_alloc.
/// Null once the ending thread has destroyed it: callers after that must manage without it.
template <class T>
T* per_thread() {
  constinit thread_local T* object = nullptr;
  constinit thread_local bool gone = false;
  if (object != nullptr || gone) return object;
  struct Owner {
    ~Owner() {
      gone = true;
      delete object;
      object = nullptr;
    }
    bool registered = false;
  };
  thread_local Owner owner;
  owner.registered = true;
  return object = new T;
}

}  // namespace openreg
