#include "memory/access_history.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

namespace openreg::memory {

namespace {

// Of one block: beyond it the older ones are forgotten, and a race with them is missed. A cache, or
// one tensor for all parameters, has as many parts that are accessed one by one.
constexpr std::size_t kMostOfOneBlock = std::size_t{1} << 13;
constexpr std::size_t kMost = std::size_t{1} << 18;

bool touches(const Footprint& footprint, std::uintptr_t begin, std::uintptr_t end) {
  return footprint.begin() < end && begin < footprint.end();
}

// Whether they conflict if they have a byte in common. Of which elements `some` are is unknown, so
// they certainly have one in common only with what covers all of which they are some.
bool may_conflict(const MemoryUse& a, const MemoryUse& b) {
  if (!a.writes && !b.writes) return false;
  if (!a.some_elements && !b.some_elements) return true;
  if (a.some_elements && b.some_elements) return false;
  const auto& some = a.some_elements ? a : b;
  const auto& all = a.some_elements ? b : a;
  return all.footprint.covers(some.footprint);
}

}  // namespace

bool replaces(const MemoryUse& later, const MemoryUse& old, std::uintptr_t begin,
              std::uintptr_t end) {
  if (old.writes && !later.writes) return false;
  if (later.some_elements && !old.some_elements) return false;
  const auto& now = later.footprint;
  const auto& then = old.footprint;
  return now.covers(then) || (now.is_contiguous() && now.begin() <= std::max(then.begin(), begin) &&
                              std::min(then.end(), end) <= now.end());
}

// The first region that ends behind the address.
AccessHistory::Regions::const_iterator AccessHistory::first_at(std::uintptr_t address) const {
  auto it = regions_.upper_bound(address);
  if (it != regions_.begin() && std::prev(it)->second.end > address) --it;
  return it;
}

std::optional<Conflict> AccessHistory::find_conflict(
    const MemoryUse& use, const VectorClock& known,
    const std::function<bool(const Access&)>& skip) const {
  const auto begin = use.footprint.begin();
  const auto end = use.footprint.end();
  for (auto it = first_at(begin); it != regions_.end() && it->first < end; ++it) {
    const auto& region = it->second;
    for (const auto& access : region.accesses) {
      // Of the same stream: in order, although another thread's may have been seen before.
      const bool in_order =
          access.submission.stream == known.last().stream || known.includes(access.submission);
      if (in_order || !may_conflict(access.use, use) || skip(access)) continue;
      if (const auto byte = common_byte(access.use.footprint, use.footprint))
        return Conflict{access, *byte, region.block};
    }
  }
  return std::nullopt;
}

template <class Predicate>
void AccessHistory::erase(Region& region, Predicate predicate) {
  size_ -= std::erase_if(region.accesses, predicate);
}

void AccessHistory::withdraw(std::span<const MemoryUse> memory, SubmissionId submission) {
  for (const auto& use : memory) {
    for (auto it = first_at(use.footprint.begin());
         it != regions_.end() && it->first < use.footprint.end(); ++it) {
      erase(regions_.at(it->first),
            [&](const Access& each) { return each.submission == submission; });
    }
  }
}

void AccessHistory::add(const MemoryUse& use, const Accessor& by, const VectorClock& known,
                        const std::shared_ptr<const AllocationInfo>& block) {
  if (use.footprint.empty()) return;
  for (const auto& region : regions_for(use)) add_to(*region, use, by, known, block);
}

std::shared_ptr<const AllocationInfo> AccessHistory::block_at(std::uintptr_t byte) const {
  const auto at = first_at(byte);
  const bool known =
      at != regions_.end() && at->first <= byte && at->second.block->kind != BlockKind::kUnknown;
  return known ? at->second.block : nullptr;
}

void AccessHistory::add_to(Regions::reference entry, const MemoryUse& use, const Accessor& by,
                           const VectorClock& known,
                           const std::shared_ptr<const AllocationInfo>& block) {
  auto& [begin, region] = entry;
  erase(region, [&, begin = begin, end = region.end](const Access& old) {
    return known.includes(old.submission) && replaces(use, old.use, begin, end);
  });
  if (region.accesses.size() >= kMostOfOneBlock) {
    if (auto* const order = HappensBefore::get()) {
      erase(region, [seen = order->seen_by_hosts()](const Access& access) {
        return seen.includes(access.submission);
      });
    }
    if (region.accesses.size() > kMostOfOneBlock / 2) forget_older_half(region);
  }
  region.accesses.push_back({use.without_shape(), by, known.last(), block ? block : region.block});
  ++size_;
}

// The region around the memory. What a graph uses may lie in several: its memory can have been
// given to tensors since the capture. Memory that no allocation was seen of has a region as large
// as the storages in it.
std::vector<AccessHistory::Regions::iterator> AccessHistory::regions_for(const MemoryUse& use) {
  const auto entry = [&](Regions::const_iterator at) { return regions_.find(at->first); };
  const auto at = first_at(use.footprint.begin());
  if (at != regions_.end() && at->first <= use.footprint.begin() &&
      use.footprint.end() <= at->second.end)
    return {entry(at)};
  auto begin = std::min(reinterpret_cast<std::uintptr_t>(use.storage), use.footprint.begin());
  auto end = std::max(reinterpret_cast<std::uintptr_t>(use.storage) + use.storage_bytes,
                      use.footprint.end());
  std::vector<Regions::iterator> touched;
  bool has_block = false;
  for (auto it = first_at(begin); it != regions_.end() && it->first < end; ++it) {
    touched.push_back(entry(it));
    has_block |= it->second.block->kind != BlockKind::kUnknown;
  }
  if (has_block) return touched;
  for (const auto& region : touched) {
    begin = std::min(begin, region->first);
    end = std::max(end, region->second.end);
  }
  auto block =
      std::make_shared<AllocationInfo>(AllocationInfo{.begin = begin, .bytes = end - begin});
  auto accesses = cut_out(begin, end);
  return {
      regions_.insert_or_assign(begin, Region{end, std::move(block), std::move(accesses)}).first};
}

// Takes [begin, end) out of the regions, and returns the accesses to it.
std::vector<Access> AccessHistory::cut_out(std::uintptr_t begin, std::uintptr_t end) {
  std::vector<Access> taken;
  auto at = first_at(begin);
  while (at != regions_.end() && at->first < end) {
    const auto first = at->first;
    Region region = std::move(regions_.at(first));
    at = regions_.erase(at);
    size_ -= region.accesses.size();
    const auto part = [&](std::uintptr_t from, std::uintptr_t to) {
      std::vector<Access> in_part;
      std::ranges::copy_if(region.accesses, std::back_inserter(in_part), [&](const Access& each) {
        return touches(each.use.footprint, from, to);
      });
      size_ += in_part.size();
      return in_part;
    };
    if (first < begin) regions_[first] = {begin, region.block, part(first, begin)};
    if (region.end > end)
      at = regions_.insert_or_assign(end, Region{region.end, region.block, part(end, region.end)})
               .first;
    auto inside = part(std::max(first, begin), std::min(region.end, end));
    std::ranges::move(inside, std::back_inserter(taken));
  }
  // An access to memory that was split is in each part.
  const auto identity = [](const Access& each) {
    return std::tuple(each.submission.stream, each.submission.number, each.use.footprint.begin(),
                      each.use.number, each.by.name, each.use.writes);
  };
  std::ranges::sort(taken, {}, identity);
  const auto copies = std::unique(
      taken.begin(), taken.end(),
      [&](const Access& one, const Access& other) { return identity(one) == identity(other); });
  size_ -= static_cast<std::size_t>(taken.end() - copies);
  taken.erase(copies, taken.end());
  return taken;
}

void AccessHistory::allocate(std::shared_ptr<AllocationInfo> block) {
  const auto begin = block->begin;
  const auto end = begin + block->bytes;
  auto accesses = cut_out(begin, end);
  regions_[begin] = {end, std::move(block), std::move(accesses)};
}

void AccessHistory::record_stream(const void* address, const Stream& stream) {
  const auto found = regions_.find(reinterpret_cast<std::uintptr_t>(address));
  if (found == regions_.end() || found->second.block->stream == &stream) return;
  found->second.block->recorded.push_back(&stream);
}

void AccessHistory::free(const void* address, LaunchSite site) {
  const auto found = regions_.find(reinterpret_cast<std::uintptr_t>(address));
  if (found == regions_.end()) return;
  auto& region = found->second;
  auto& block = *region.block;
  block.freed = true;
  block.freed_by = site;
  erase(region, [&](const Access& access) {
    return std::ranges::find(block.recorded, access.by.stream) != block.recorded.end();
  });
  if (region.accesses.empty()) regions_.erase(found);
}

void AccessHistory::forget(const void* begin, std::size_t bytes) {
  const auto from = reinterpret_cast<std::uintptr_t>(begin);
  size_ -= cut_out(from, from + bytes).size();
}

void AccessHistory::trim(const VectorClock& seen_by_hosts) {
  for (auto it = regions_.begin(); it != regions_.end();) {
    auto& region = it->second;
    erase(region, [&](const Access& access) { return seen_by_hosts.includes(access.submission); });
    it = region.accesses.empty() &&
                 (region.block->freed || region.block->kind == BlockKind::kUnknown)
             ? regions_.erase(it)
             : std::next(it);
  }
  if (size_ < kMost) return;
  for (auto& [begin, region] : regions_) forget_older_half(region);
}

void AccessHistory::forget_older_half(Region& region) {
  const auto half = static_cast<std::ptrdiff_t>((region.accesses.size() + 1) / 2);
  region.accesses.erase(region.accesses.begin(), region.accesses.begin() + half);
  size_ -= static_cast<std::size_t>(half);
}

void AccessHistory::clear() {
  regions_.clear();
  size_ = 0;
}

}  // namespace openreg::memory
