#include "executor/messages.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace openreg::executor {

namespace {

constexpr std::size_t kMostDescriptors = 2;

struct alignas(cmsghdr) ControlBytes {
  std::array<std::byte, CMSG_SPACE(kMostDescriptors * sizeof(int))> bytes{};
};

}  // namespace

bool send_packet(int socket, std::span<const std::byte> packet,
                 std::span<const int> descriptors) noexcept {
  iovec part{const_cast<std::byte*>(packet.data()), packet.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  ControlBytes control;
  if (!descriptors.empty()) {
    message.msg_control = control.bytes.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  ssize_t sent = 0;
  do {
    sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  return sent >= 0;
}

bool receive_packet(int socket, std::span<std::byte> packet,
                    std::span<Descriptor> descriptors) noexcept {
  iovec part{packet.data(), packet.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  ControlBytes control;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  ssize_t received = 0;
  do {
    received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    std::array<int, kMostDescriptors> numbers{};
    const std::size_t count =
        std::min((header->cmsg_len - CMSG_LEN(0)) / sizeof(int), numbers.size());
    std::memcpy(numbers.data(), CMSG_DATA(header), count * sizeof(int));
    for (std::size_t i = 0; i < count; ++i) {
      Descriptor owned(numbers[i]);
      if (i < descriptors.size()) descriptors[i] = std::move(owned);
    }
  }
  return received == static_cast<ssize_t>(packet.size());
}

}  // namespace openreg::executor
