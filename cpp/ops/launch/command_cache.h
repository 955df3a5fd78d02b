#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace openreg::ops {

class OpKernel;

/// Computes commands that are alike: they have the same kernel and the same shapes of tensors, but
/// their storages and values may differ.
class CachedCommand {
 public:
  virtual ~CachedCommand() = default;
  /// Computes a command. False: it has been computed, but this must not compute another one.
  virtual bool run(std::span<const std::byte> command) = 0;
};

/// A thread's cache of commands. Programs compute the same again and again, in other memory. From
/// the second of a kernel's commands that are alike the thread keeps their tensors, and if the
/// values are equal too, what the kernel makes of them (BodyTraits::make_cached). Another command
/// may evict a cached one.
class CommandCache {
 public:
  /// Computes the command by the calling thread's cache. False: nothing has been cached for it.
  static bool run(const OpKernel& kernel, std::span<const std::byte> command);

 private:
  struct Entry {
    const OpKernel* kernel = nullptr;
    std::vector<std::byte> command;              // the last one
    std::unique_ptr<CachedCommand> tensors;      // for any values
    std::unique_ptr<CachedCommand> computation;  // for those of the command, to which it refers
    bool tried_computation = false;
  };

  bool run_entry(const OpKernel& kernel, std::span<const std::byte> command);

  std::vector<Entry> entries_;
  bool in_use_ = false;
};

}  // namespace openreg::ops
