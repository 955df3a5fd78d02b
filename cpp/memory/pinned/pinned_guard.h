#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "address_space/fault_message.h"
#include "base/mutex.h"
#include "memory/command_check.h"
#include "memory/footprint.h"
#include "memory/pinned/pending_copies.h"
#include "memory/pinned/pinned_windows.h"
#include "runtime/happens_before.h"

namespace openreg::memory {

/// Finds hosts that use pinned memory too early: that read the result of an asynchronous copy, or
/// write to its source, before they have waited for it. While such a copy is pending, the program's
/// pages are protected, and a host that uses them faults. It is pending until hosts have seen it
/// complete (HappensBefore), so the error is found in each run, however fast the copy is. A program
/// without such an error never meets a protected page: a page is protected only if all of it that
/// the program has belongs to pending copies. See Note [Guarded pinned memory] in pinned_guard.cpp.
///
/// Memory is guarded if it was allocated after the guard was switched on; registered memory of the
/// program is not. Of very many pending copies the newest are guarded (PendingCopies). System calls
/// that come too early do not fault: they fail with EFAULT. Thread safe; its lock is a leaf.
class PinnedGuard final : public CommandCheck {
 public:
  /// What happens at the error.
  enum class Reaction : std::uint8_t {
    /// A warning by the function of set_reporter(), else a line on stderr; the program goes on.
    kWarn,
    /// An exception by that function; else a line on stderr, and the signal goes to the program's
    /// handler, or ends the process. If that handler returns, the program goes on.
    kRaise,
  };

  /// Whether the guard can be switched on in this build: a sanitizer keeps SIGSEGV for itself.
  static constexpr bool kAvailable = kFaultMessageAvailable;

  /// The guard; null unless it is on. This check is all that it costs otherwise.
  static PinnedGuard* get() noexcept { return instance_.load(std::memory_order_acquire); }
  /// Needs HappensBefore. May be called again, with another reaction. Does nothing unless
  /// kAvailable.
  static void switch_on(Reaction reaction);
  /// Forgets all pending copies.
  static void switch_off();

  /// Raises `report` as an exception or a warning of the program, soon after the instruction has
  /// been executed, and returns true; or false if that is not possible on the calling thread.
  /// Called by the signal handler: the thread is at an instruction that accesses pinned memory, so
  /// it holds none of the locks of the allocator, of this library and of Python, and they may be
  /// taken. `report` is valid during the call.
  using Reporter = bool (*)(const char* report, Reaction how) noexcept;
  /// Replaces the function that reports; null: none is called.
  static void set_reporter(Reporter reporter) noexcept;

  void before_enqueue(Launch& launch) override;
  void before_replay(Launch& launch) override { before_enqueue(launch); }
  void withdrawn(Launch& launch) override;
  void reused(const void* memory, std::size_t, BlockKind) override { reused(memory); }

  /// The command `submission`, which is about to be enqueued, reads this pinned memory, given by
  /// the program's addresses, or writes it. `description`: of the command and of the memory.
  void protect(const Footprint& footprint, bool written, SubmissionId submission,
               std::string description);
  /// The command has not been enqueued after all.
  void withdraw(SubmissionId submission);
  /// Hosts may have seen more commands complete: Callbacks::on_host_progress, which switch_on()
  /// installs.
  void release_seen();
  /// The block at `begin` is handed out anew or returned to the system: what is pending there does
  /// not concern its next owner.
  void reused(const void* begin);

 private:
  using Copies = std::vector<const PendingCopy*>;

  PinnedGuard() = default;
  static PinnedGuard& instance();
  void open(PendingCopies::List gone) OPENREG_REQUIRES(mutex_);
  void apply(PinnedWindows::Block block, std::uintptr_t begin, std::uintptr_t end)
      OPENREG_REQUIRES(mutex_);

  static FaultResult handle_fault(const void* address, FaultAccess access) noexcept;
  FaultResult handle_fault(PinnedWindows::Block block, std::uintptr_t address,
                           FaultAccess did) noexcept;
  bool is_spurious_fault(std::uintptr_t page) const noexcept;
  FaultResult report(PinnedWindows::Block block, const PendingCopy& copy, std::uintptr_t address,
                     FaultAccess did) noexcept;

  static std::atomic<PinnedGuard*> instance_;

  std::atomic<Reaction> reaction_{Reaction::kWarn};
  std::atomic<Reporter> reporter_{nullptr};
  std::atomic<std::uint64_t> changes_{0};  // of the protection of pages
  Mutex mutex_;
  PendingCopies pending_;  // changed with the lock held; the signal handler reads of_block()
};

}  // namespace openreg::memory
