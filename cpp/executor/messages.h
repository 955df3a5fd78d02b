#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "address_space/address_space.h"
#include "executor/descriptor.h"

namespace openreg::executor {

// What travels through the socket between the program and the executor; requests do not.

/// The first message, with the descriptors of the shared block and of the device's memory.
struct Hello {
  std::uint64_t bytes_of_block;  // a library of another build would have another
  AddressSpace::Layout layout;
  int device;
};

/// The later messages.
struct Message {
  enum class Kind : std::uint32_t {
    kMap,      ///< `bytes` of a file at `offset` of the window; with a descriptor: not the device's
    kUnmap,    ///< `bytes` at `offset` of the window
    kNothing,  ///< counts as one about memory: what was to be mapped is unmapped
    kServe,    ///< a thread serves channel `offset` from now on
    kForget,   ///< what requests have left under the number `offset` is not needed any more
  };
  Kind kind;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t file_offset = 0;
};

/// Sends one packet, with up to two descriptors. False, and errno says why, if the system refuses;
/// EAGAIN: the other side must receive first. Does not wait.
bool send_packet(int socket, std::span<const std::byte> packet,
                 std::span<const int> descriptors) noexcept;
template <class T>
bool send_packet(int socket, const T& packet, std::span<const int> descriptors = {}) noexcept {
  return send_packet(socket, std::as_bytes(std::span(&packet, 1)), descriptors);
}

/// Waits for a packet of this size. False: the other side has closed the socket.
bool receive_packet(int socket, std::span<std::byte> packet,
                    std::span<Descriptor> descriptors) noexcept;
template <class T>
bool receive_packet(int socket, T& packet, std::span<Descriptor> descriptors = {}) noexcept {
  return receive_packet(socket, std::as_writable_bytes(std::span(&packet, 1)), descriptors);
}

}  // namespace openreg::executor
