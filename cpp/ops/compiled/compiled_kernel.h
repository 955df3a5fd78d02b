#pragma once

#include <ATen/core/TensorBase.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/submit.h"
#include "runtime/command.h"

namespace openreg::ops {

/// The kind of a compiled kernel's parameter: a tensor, all or some of whose elements it uses, or a
/// number.
enum class Parameter : std::uint8_t {
  kReads,
  kReadsSome,
  kWrites,
  kWritesSome,
  kInteger,
  kFloat,
};

/// A kernel that was generated and compiled while the process ran (torch.compile). It is made once
/// for each source and lives as long as the process, as all kernels do: commands point to it.
class CompiledKernel : public Kernel {
 public:
  /// The compiled function. It takes a word for each parameter: an address that it can access, an
  /// integer, or the bits of a float.
  using Entry = void (*)(const std::int64_t* arguments);

  /// The kernel with this name; only the first call for a name uses `entry` and `parameters`.
  /// Without `entry` it can be launched if the devices do not compute. Thread safe.
  static const CompiledKernel& get(const std::string& name, Entry entry,
                                   const std::vector<Parameter>& parameters);

  const std::vector<Parameter>& parameters() const noexcept { return parameters_; }

 private:
  CompiledKernel(const char* name, Entry entry, std::vector<Parameter> parameters);
  static void run(const Kernel& kernel, std::span<const std::byte> arguments);
  static std::optional<std::string> describe(const Kernel& kernel);
  static const Kernel* make(const std::string& name, const std::string& description);
  static const KernelFactory kFactory;

  const Entry entry_;
  const std::vector<Parameter> parameters_;
};

/// One call of a compiled kernel: its arguments are added in the order of the parameters, and then
/// it is launched, on the current stream of its tensors' device. Used by one thread.
class CompiledCall {
 public:
  explicit CompiledCall(const CompiledKernel& kernel);

  /// Adds a tensor of the device or, for a parameter that the kernel reads, a CPU tensor without
  /// dimensions, whose value travels in the command. Throws c10::Error for others, for tensors
  /// whose storage has been freed, and if no tensor is expected; the argument is then not added.
  void add(const at::TensorBase& tensor);
  /// Adds an integer. Throws c10::Error if none is expected.
  void add(std::int64_t number);
  /// Adds a floating-point number. Throws c10::Error if none is expected.
  void add(double number);

  /// The kind of the next argument. Throws c10::Error if there is none left.
  Parameter next() const;

  /// Throws c10::Error if arguments are missing, and what backend::submit() throws.
  void launch();

 private:
  void add_word(std::int64_t word);
  std::int64_t add_value(const at::TensorBase& cpu_tensor);

  const CompiledKernel& kernel_;
  std::size_t added_ = 0;
  std::size_t bytes_touched_ = 0;
  std::optional<c10::Device> device_;
  c10::SmallVector<std::int64_t, 32> words_;
  backend::MemoryOfCommand memory_;  // if commands are checked
};

}  // namespace openreg::ops
