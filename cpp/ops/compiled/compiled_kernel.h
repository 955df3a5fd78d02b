#pragma once

#include <ATen/core/TensorBase.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/command.h"

namespace openreg::ops {

/// What a compiled kernel takes in a place of its arguments.
enum class Parameter : std::uint8_t { kReads, kWrites, kInteger, kFloat };

/// A kernel that was generated and compiled while the process ran (torch.compile). It is made once
/// for each source and lives as long as the process, as all kernels do: commands point to it.
class CompiledKernel : public Kernel {
 public:
  /// The function that was compiled. It takes a word for each parameter: an address that it can
  /// access, an integer, or the bits of a float.
  using Entry = void (*)(const std::int64_t* arguments);

  /// The kernel of that name; `entry` and `parameters` are those of its first call. Thread safe.
  static const CompiledKernel& get(const std::string& name, Entry entry,
                                   const std::vector<Parameter>& parameters);

  const std::vector<Parameter>& parameters() const noexcept { return parameters_; }

 private:
  CompiledKernel(const char* name, Entry entry, std::vector<Parameter> parameters);
  static void run(const Kernel& kernel, std::span<const std::byte> arguments);

  const Entry entry_;
  const std::vector<Parameter> parameters_;
};

/// One call of a compiled kernel: its arguments are added in the order of the parameters, and then
/// it is submitted, to the current stream of its tensors' device. Used by one thread.
class CompiledCall {
 public:
  explicit CompiledCall(const CompiledKernel& kernel);

  /// A tensor of the device, or, where the kernel reads, one of the CPU without dimensions, whose
  /// value travels in the command. Throws c10::Error for others, for those whose storage has been
  /// freed, and where no tensor is expected.
  void add(const at::TensorBase& tensor);
  void add(std::int64_t number);
  void add(double number);

  /// What add() takes next. Throws c10::Error if there is nothing left to add.
  Parameter next() const;

  /// Throws c10::Error if arguments are missing, and what backend::submit() throws.
  void submit();

 private:
  void add_word(std::int64_t word);
  std::int64_t add_value(const at::TensorBase& cpu_tensor);

  const CompiledKernel& kernel_;
  std::size_t added_ = 0;
  std::size_t bytes_touched_ = 0;
  std::optional<c10::Device> device_;
  c10::SmallVector<std::int64_t, 32> words_;
};

}  // namespace openreg::ops
