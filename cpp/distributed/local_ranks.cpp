#include "distributed/local_ranks.h"

#include <atomic>
#include <exception>
#include <random>
#include <string>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "runtime/happens_before.h"

namespace openreg::distributed {

namespace {

/// What the group's ranks have in common, in all processes, and other groups have not.
std::string name_of_group(c10d::Store& store) {
  std::random_device random;
  std::string proposal;
  for (int i = 0; i < 4; ++i) proposal += std::to_string(random()) + ".";
  return store.compareSet("occl_group", "", proposal);
}

bool is_in_memory(c10d::Store& store) {
  auto* const prefix = dynamic_cast<c10d::PrefixStore*>(&store);
  if (prefix == nullptr) return dynamic_cast<c10d::HashStore*>(&store) != nullptr;
  return dynamic_cast<c10d::HashStore*>(prefix->getUnderlyingNonPrefixStore().get()) != nullptr;
}

}  // namespace

std::shared_ptr<LocalRanks> LocalRanks::join(c10d::Store& store, int rank, int size) {
  static Mutex mutex;
  static auto& groups = *new std::map<std::string, std::weak_ptr<LocalRanks>>;
  std::string name;
  try {
    name = name_of_group(store);
  } catch (const std::exception&) {  // of a store that lacks this
    return nullptr;
  }
  const LockGuard lock(mutex);
  std::erase_if(groups, [](const auto& entry) { return entry.second.expired(); });
  auto& known = groups[name];
  auto group = known.lock();
  if (!group) known = group = std::make_shared<LocalRanks>();
  auto* const order = HappensBefore::get();
  const LockGuard group_lock(group->mutex_);
  for (int other = 0; other < size && is_in_memory(store); ++other)
    group->homes_.try_emplace(other);
  const auto home = group->homes_[rank] = this_thread_number();
  for (const auto& [sequence, number] : group->numbers_) {
    if (order != nullptr && sequence.rank == rank) order->set_home(number, home);
  }
  return group;
}

void LocalRanks::leave(int rank) {
  auto* const order = HappensBefore::get();
  const LockGuard lock(mutex_);
  homes_.erase(rank);
  for (const auto& [sequence, number] : numbers_) {
    if (order != nullptr && sequence.rank == rank) order->end_milestones(number);
  }
}

std::vector<int> LocalRanks::others(int rank) {
  const LockGuard lock(mutex_);
  std::vector<int> ranks;
  for (const auto& [other, home] : homes_) {
    if (other != rank) ranks.push_back(other);
  }
  return ranks;
}

std::uint64_t LocalRanks::next_id() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

std::uint32_t LocalRanks::number_of(Sequence sequence) {
  auto& number = numbers_[sequence];
  if (number == 0) number = HappensBefore::get()->add_milestones(id_, homes_.at(sequence.rank));
  return number;
}

void LocalRanks::begin(Sequence sequence, std::uint64_t number, const Stream& stream) {
  auto* const order = HappensBefore::get();
  const LockGuard lock(mutex_);
  if (order == nullptr || homes_.size() < 2) return;
  order->reach({.stream = number_of(sequence), .number = number}, stream);
}

void LocalRanks::wait(Sequence sequence, std::uint64_t number, const Stream& stream) {
  auto* const order = HappensBefore::get();
  const LockGuard lock(mutex_);
  if (order == nullptr || !homes_.contains(sequence.rank)) return;
  order->wait(stream, SubmissionId{.stream = number_of(sequence), .number = number});
}

}  // namespace openreg::distributed
