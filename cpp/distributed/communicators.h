#pragma once

#include <cstddef>
#include <vector>

namespace openreg::distributed {

/// What NCCL would have connected on a device for a group of two or more ranks.
struct Communicator {
  int device;
  int ranks;
  bool collectives = false;  ///< whether the group has had one
  std::size_t peers = 0;     ///< other ranks with which this one has exchanged messages
};

// All thread safe. A group is named by its address.

/// The group has its first collective on a device, or its first message to or from `peer`; -1: to
/// or from any rank, or itself.
void note_connection(const void* group, const Communicator& first, int peer);
/// The group exchanges messages with all ranks but `rank`, its own.
void note_connections_with_all(const void* group, const Communicator& first, int rank);
/// The group is shut down, or destroyed.
void forget_communicators(const void* group);

/// The communicators of the time at which there were most, since the start or the last reset, which
/// leaves those that exist.
std::vector<Communicator> most_communicators();
void reset_most_communicators();

}  // namespace openreg::distributed
