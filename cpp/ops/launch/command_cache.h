#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace openreg::ops {

class OpKernel;

/// What computes a command and others that are alike: the kernel and the shapes of the tensors are
/// the same, but their storages and the values need not be.
class KeptCommand {
 public:
  virtual ~KeptCommand() = default;
  /// Computes a command that is alike. False: it has, but can compute no other one.
  virtual bool run(std::span<const std::byte> command) = 0;
};

/// The kept commands of one thread. Programs compute the same again and again, in other memory.
/// From the second of a kernel's commands that are alike the thread keeps their tensors, and if the
/// values are equal too, what the kernel makes of them (BodyTraits::keep). Another command may take
/// the place of a kept one.
class KeptCommands {
 public:
  /// Computes the command by what the calling thread has kept. False: there is nothing yet.
  static bool run(const OpKernel& kernel, std::span<const std::byte> command);

 private:
  struct Entry {
    const OpKernel* kernel = nullptr;
    std::vector<std::byte> command;        // the last one
    std::unique_ptr<KeptCommand> tensors;  // for any values
    std::unique_ptr<KeptCommand> whole;    // for those of the command, to which it refers
    bool tried_whole = false;
  };

  bool run_here(const OpKernel& kernel, std::span<const std::byte> command);

  std::vector<Entry> entries_;
  bool in_use_ = false;
};

}  // namespace openreg::ops
