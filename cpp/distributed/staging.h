#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "distributed/stash.h"
#include "memory/memory_use.h"
#include "runtime/stream.h"

namespace openreg::distributed {

/// How the elements of a collective's tensors reach Gloo. See Note [Collectives without computing].
enum class Movement : std::uint8_t {
  kInPlace,   ///< Gloo works on the device's memory
  kByCopies,  ///< Gloo works on copies on the host, which the operation makes
  kNone,      ///< they do not
};

/// The movement for a call of a collective that concerns so many bytes, a number that all its ranks
/// have in common.
Movement movement_of(std::int64_t bytes);
/// Whether a message from one rank to another, one of so many at the same time, is moved.
bool moves_message(std::int64_t bytes, int messages);

/// The tensors of a collective in the form that Gloo takes: contiguous, and of a dtype that it
/// supports. In place, the copies that this needs are commands of the collective's stream, which is
/// current. By copies, all that Gloo is given are CPU tensors, which receive their values when the
/// operation begins. Without movement they are meta tensors.
class Staging {
 public:
  Staging(const Stream& stream, Movement movement) : stream_(stream), movement_(movement) {}

  /// The tensor that Gloo reads in place of `tensor`. `dtype`: if given, to be used instead of the
  /// tensor's.
  at::Tensor input(const at::Tensor& tensor, std::optional<c10::ScalarType> dtype = std::nullopt);
  /// The tensor that Gloo writes in place of `tensor`. `own`: never use the tensor's own memory.
  at::Tensor output(const at::Tensor& tensor, std::optional<c10::ScalarType> dtype = std::nullopt,
                    bool own = false);
  /// The tensor that Gloo reads and writes in place of `tensor`.
  at::Tensor in_out(const at::Tensor& tensor, std::optional<c10::ScalarType> dtype = std::nullopt,
                    bool own = false);

  // Messages of one dtype to, and from, the ranks of the group: one tensor that Gloo reads or
  // writes, in which those that are moved follow one another.
  at::Tensor packed_input(at::TensorList tensors);
  at::Tensor packed_output(at::TensorList tensors);
  /// Whether a message is moved, one of `messages` at the same time.
  bool moves(const at::Tensor& message, std::size_t messages) const;

  /// A copy of `tensor`, or what takes its place, that Gloo may overwrite.
  at::Tensor scratch(const at::Tensor& tensor);
  /// `tensor` as something that before() adds may read it.
  at::Tensor operand(const at::Tensor& tensor);

  /// Keeps the tensor's memory until the operation has ended.
  void use(const at::Tensor& tensor);

  Movement movement() const noexcept { return movement_; }
  /// Computes something on what Gloo is given, after all copies that were asked for so far:
  /// launches it, or lets the operation do it before it calls Gloo.
  void before(std::function<void()> compute);
  /// Adds something to compute after Gloo's work, before results are copied to their places.
  void after(std::function<void()> compute) { after_.push_back(std::move(compute)); }
  /// In place: launches what after() added, and then the copies of results.
  void finish();
  /// Called when the operation has been enqueued: notes what is known of the results' values, if
  /// the device does not compute. `received`: what a call without inputs has received.
  enum class Received : std::uint8_t { kValues, kZeros };
  void note_values(Received received) const;
  /// What the operation must do before, and after, the call of Gloo; null: nothing.
  std::function<void()> arrival();
  std::function<void()> departure();

  /// What Gloo itself reads and writes; collected if commands are checked.
  std::span<const openreg::memory::MemoryUse> uses() const { return uses_; }
  const Stash::Memory& memory() const { return memory_; }
  Stash::Memory take_memory() { return std::move(memory_); }

 private:
  struct Copy {
    at::Tensor from;
    at::Tensor to;
  };
  bool fits(const at::Tensor& tensor, std::optional<c10::ScalarType> dtype) const;
  at::Tensor empty(at::IntArrayRef sizes, const at::TensorOptions& options) const;
  at::Tensor room_for(at::TensorList tensors);
  void copy(const at::Tensor& to, const at::Tensor& from);
  void note(const at::Tensor& tensor, bool writes);

  const Stream& stream_;
  const Movement movement_;
  bool moves_all_ = true;
  Stash::Memory memory_;
  std::vector<std::function<void()>> before_;
  std::vector<openreg::memory::MemoryUse> uses_;
  std::vector<std::function<void()>> after_;
  std::vector<Copy> copies_;
};

}  // namespace openreg::distributed
