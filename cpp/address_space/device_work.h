#pragma once

#include <atomic>
#include <cstdint>

namespace openreg {

/// What a thread does with device memory: for the messages of faults.
struct DeviceWork {
  static constexpr std::int64_t kNone = -1;

  const char* name = nullptr;  ///< name of the kernel or the operator; null: none
  int device = 0;
  std::int64_t stream = kNone;
  std::int64_t node = kNone;  ///< number of the graph's node
};

/// Declares what the calling thread does until the end of the scope. Scopes nest. `work.name`
/// outlives the scope. See Note [Illegal accesses].
class DeviceWorkScope {
 public:
  explicit DeviceWorkScope(const DeviceWork& work) noexcept;
  ~DeviceWorkScope();
  DeviceWorkScope(const DeviceWorkScope&) = delete;
  DeviceWorkScope& operator=(const DeviceWorkScope&) = delete;

  /// Whether the work has used device memory that is not mapped. Such a read has returned zeros,
  /// and a write has had no effect.
  bool is_illegal() const noexcept {
    return slot_ != nullptr && slot_->illegal.load(std::memory_order_relaxed) != 0;
  }
  DeviceWork what() const noexcept { return slot_ ? slot_->work() : DeviceWork{}; }
  /// Throws Error if is_illegal(). Without this call the end of the scope prints it.
  void check() {
    if (is_illegal()) [[unlikely]]
      raise();
  }

  /// Publishes a thread's work to signal handlers of any thread. Never freed; the slot of a thread
  /// that has ended is reused.
  struct Slot {
    std::atomic<const char*> name{nullptr};
    std::atomic<int> device{0};
    std::atomic<std::int64_t> stream{DeviceWork::kNone};
    std::atomic<std::int64_t> node{DeviceWork::kNone};
    std::atomic<std::uintptr_t> illegal{0};  // the first address
    std::atomic<bool> is_suspicion{false};   // another of several commands may have used it
    std::atomic<bool> owned{true};           // by a thread
    Slot* next = nullptr;

    DeviceWork work() const noexcept;
    void set(const DeviceWork& work) noexcept;
  };

 private:
  [[noreturn]] void raise();

  Slot* const slot_;  // the thread's; null: the thread ends
  DeviceWork outer_;
  std::uintptr_t outer_illegal_ = 0;
};

/// The calling thread's slot if it works, else null. Async-signal-safe.
DeviceWorkScope::Slot* slot_of_this_thread() noexcept;
/// The first of all slots. Async-signal-safe.
DeviceWorkScope::Slot* first_slot() noexcept;
/// Calls f(slot) for each thread that works. Async-signal-safe.
template <class F>
void for_each_working_slot(F f) {
  for (auto* slot = first_slot(); slot != nullptr; slot = slot->next) {
    if (slot->name.load(std::memory_order_relaxed) != nullptr) f(*slot);
  }
}

}  // namespace openreg
