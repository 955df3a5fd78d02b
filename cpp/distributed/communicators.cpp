#include "distributed/communicators.h"

#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace openreg::distributed {

namespace {

class Communicators {
 public:
  template <class Note>
  void note(const void* group, const Communicator& first, Note&& add_to) {
    const std::lock_guard lock(mutex_);
    auto& [of, peers] = now_[{group, first.device}];
    of.device = first.device;
    of.ranks = first.ranks;
    of.collectives |= first.collectives;
    add_to(peers);
    of.peers = peers.size();
    compare();
  }
  void forget(const void* group) {
    const std::lock_guard lock(mutex_);
    std::erase_if(now_, [&](const auto& each) { return each.first.first == group; });
  }
  std::vector<Communicator> most() {
    const std::lock_guard lock(mutex_);
    return most_;
  }
  void reset() {
    const std::lock_guard lock(mutex_);
    connections_ = 0;
    most_.clear();
    compare();
  }

  // Leaked: groups may be destroyed during static destruction.
  static Communicators& get() {
    static auto& communicators = *new Communicators;
    return communicators;
  }

 private:
  void compare() {
    std::size_t connections = 0;
    for (const auto& [_, entry] : now_)
      connections += std::size_t{entry.first.collectives} + entry.first.peers;
    if (connections < connections_) return;
    connections_ = connections;
    most_.clear();
    for (const auto& [_, entry] : now_) most_.push_back(entry.first);
  }

  std::mutex mutex_;
  std::map<std::pair<const void*, int>, std::pair<Communicator, std::set<int>>> now_;
  std::vector<Communicator> most_;
  std::size_t connections_ = 0;  // of most_
};

}  // namespace

void note_connection(const void* group, const Communicator& first, int peer) {
  Communicators::get().note(group, first, [peer](std::set<int>& peers) {
    if (peer >= 0) peers.insert(peer);
  });
}

void note_connections_with_all(const void* group, const Communicator& first, int rank) {
  Communicators::get().note(group, first, [&](std::set<int>& peers) {
    if (peers.size() + 1 == static_cast<std::size_t>(first.ranks)) return;
    for (int peer = 0; peer < first.ranks; ++peer)
      if (peer != rank) peers.insert(peer);
  });
}

void forget_communicators(const void* group) { Communicators::get().forget(group); }

std::vector<Communicator> most_communicators() { return Communicators::get().most(); }
void reset_most_communicators() { Communicators::get().reset(); }

}  // namespace openreg::distributed
