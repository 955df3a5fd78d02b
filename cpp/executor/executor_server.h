#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace openreg::executor {

/// What the layers above make of requests, in the executor.
struct Service {
  /// Called once, before the first request. Null: nothing. Throws to end the executor.
  void (*begin)() = nullptr;
  /// Called by each thread that serves requests, before the first one. Null: nothing.
  void (*begin_thread)() = nullptr;
  /// Handles a request, whose parts lie at multiples of 16, and returns its status (not kGoOn);
  /// `data` is what else the program shall get, of which at most Channel::kBytes arrive. Must not
  /// throw.
  std::uint32_t (*handle)(std::span<const std::byte> request, std::string& data) noexcept = nullptr;
  /// Drops what requests have left under this number.
  void (*forget)(std::uint64_t number) = nullptr;
};

/// Called while a request is handled, by its thread: the program learns of it if the process ends.
void note_progress(std::uint32_t progress) noexcept;

/// Serves the requests of the program at the other end of the socket until the process ends.
[[noreturn]] void serve(int socket, const Service& service) noexcept;

}  // namespace openreg::executor
