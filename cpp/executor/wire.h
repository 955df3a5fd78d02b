#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "base/round_up.h"
#include "executor/executor.h"

// How requests and answers of executors look, for the two sides (executor.cpp,
// executor_service.cpp).
namespace openreg::wire {

/// The status of an answer; a failure is kFailed + the kind of the error. Unless it is kDone, it is
/// the status of one command or item, and those before it have run.
enum Status : std::uint32_t { kDone, kUnknownKernel, kUnknownNodes, kFailed };

/// The first part of each request; as many items follow.
struct Header {
  ExecutorCallbacks::Settings settings;
  std::int32_t threads;
  std::uint32_t items;
};

/// A command, or consecutive nodes of a graph. Two parts follow: how the kernel is made, or the
/// nodes (for each its kernel, as 8 bytes, its recipe, and its arguments), both empty if the
/// process has them; and the arguments, if it is a command.
struct ItemHeader {
  std::uint64_t number;  // of the kernel, or the graph
  std::uint32_t first;   // node
  std::uint32_t nodes;   // 0: it is a command
  std::uint32_t definition_bytes;
  std::uint32_t argument_bytes;
  bool crashes;
};

/// What follows the status, if there is something: how many commands and nodes have run, which of
/// them is unknown, the message of an error, and warnings.
struct AnswerHeader {
  std::uint32_t completed;
  std::uint32_t unknown;
};

/// A value, and a text with its length, in a part.
template <class T>
void append(std::string& part, const T& value) {
  part.append(reinterpret_cast<const char*>(&value), sizeof value);
}
inline void append_text(std::string& part, const std::string& text) {
  append(part, static_cast<std::uint32_t>(text.size()));
  part += text;
}

/// Takes values and texts off the front of a part. Of one that was cut off, what is missing is zero
/// or empty.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> part) : rest_(part) {}

  bool at_end() const noexcept { return rest_.empty(); }
  template <class T>
  T value() {
    T value{};
    const auto bytes = take(sizeof value);
    std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }
  std::span<const std::byte> bytes() { return take(value<std::uint32_t>()); }
  std::string text() {
    const auto taken = bytes();
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }

 private:
  std::span<const std::byte> take(std::size_t count) {
    const auto taken = rest_.first(std::min(count, rest_.size()));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }

  std::span<const std::byte> rest_;
};

/// Takes the parts of a request off its front, each of which begins at a multiple of 16.
class PartReader {
 public:
  explicit PartReader(std::span<const std::byte> request) : request_(request) {}

  template <class T>
  T value() {
    return Reader(part(sizeof(T))).value<T>();
  }
  std::span<const std::byte> part(std::size_t bytes) {
    at_ = std::min(round_up(at_, executor::kPartAlignment), request_.size());
    const auto part = request_.subspan(at_, std::min(bytes, request_.size() - at_));
    at_ += part.size();
    return part;
  }

 private:
  const std::span<const std::byte> request_;
  std::size_t at_ = 0;
};

}  // namespace openreg::wire
