// Device memory. PyTorch asks for memory of the current device, with the current stream, and frees
// it while the device still uses it. So freed memory goes back to the stream that it was made for,
// whose later commands run after the earlier ones; to wait for the device would cost more than the
// work. Memory that other streams use, too, is kept until these have passed the free.
#include "allocator.h"

#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "device.h"
#include "driver/memory.h"

namespace torch_acme {

namespace {

using c10::CachingAllocator::Stat;
using c10::CachingDeviceAllocator::DeviceStats;

// Statistics come as "all", "small_pool" and "large_pool"; this allocator has one pool.
constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);

struct Block {
  void* memory;
  std::size_t bytes;
  std::size_t requested;
  driver::Stream* stream;                // that it was allocated for
  std::set<driver::Stream*> users;       // others, from record_stream
  std::vector<driver::Event> last_uses;  // of the others, recorded at the free
};

// Small requests have many sizes, and must find blocks of others.
std::size_t rounded(std::size_t bytes) {
  const std::size_t step = bytes < (std::size_t{1} << 20) ? 512 : std::size_t{1} << 21;
  return (bytes + step - 1) / step * step;
}

class Allocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const auto index = current_device();
    const c10::Device device(kAcme, index);
    // A tensor's device is that of this pointer, so the null pointer of an empty tensor has it too.
    if (bytes == 0) return {nullptr, nullptr, &free, device};
    auto& stream = current_stream(index);
    TORCH_CHECK(!driver::in_bad_fork(),
                "acme: the device cannot be used in a forked child of a "
                "process that has used it; start the child with the method 'spawn'");
    const Block* block = find(bytes, stream);
    if (block == nullptr) {
      emptyCache();
      block = find(bytes, stream);
    }
    if (block == nullptr) {
      const std::lock_guard lock(mutex_);
      ++stats_[index].num_ooms;
    }
    // torch.OutOfMemoryError: programs catch it and try a smaller batch.
    TORCH_CHECK_WITH(OutOfMemoryError, block != nullptr, "acme: out of memory on ", device,
                     " (got a request for ", bytes, " bytes, expected at most ",
                     driver::free_bytes(index), ")");
    report(block->memory, static_cast<std::int64_t>(block->bytes), device);
    return {block->memory, block->memory, &free, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free; }

  // In stream order, as every command.
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    if (bytes == 0) return;
    current_stream(static_cast<c10::DeviceIndex>(driver::device_of(to))).submit([=] {
      std::memcpy(driver::bytes_of(to), driver::bytes_of(from), bytes);
    });
  }

  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    if (data.get() == nullptr) return;
    const std::lock_guard lock(mutex_);
    const auto it = used_.find(data.get());
    if (it == used_.end()) return;  // not from here
    auto& user = to_driver(stream);
    if (&user != it->second.stream) it->second.users.insert(&user);
  }

  // --- torch.accelerator.memory_allocated(), empty_cache() and so on ---

  bool initialized() override { return true; }

  // Gives the free blocks back, so that they can become one. Another stream may get the memory, so
  // no command may use it any more.
  void emptyCache(c10::MempoolId_t = {0, 0}) override {
    for (int device = 0; device < driver::kDevices; ++device) {
      if (driver::is_used(device)) driver::synchronize_device(device);
    }
    const std::lock_guard lock(mutex_);
    reuse_finished();
    for (auto& [stream, blocks] : free_) {
      for (auto& [bytes, block] : blocks) {
        driver::free(block.memory);
        count(stats_of(block).reserved_bytes, -static_cast<std::int64_t>(bytes));
        count(stats_of(block).segment, -1);
      }
      blocks.clear();
    }
  }
  DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const std::lock_guard lock(mutex_);
    return stats_[checked(device)];
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    for_each_stat(device, [](Stat& stat) { stat.reset_accumulated(); });
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    for_each_stat(device, [](Stat& stat) { stat.reset_peak(); });
  }
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex device) override {
    return {driver::free_bytes(checked(device)), driver::kBytesPerDevice};
  }

 private:
  static void free(void* memory) { static_cast<Allocator&>(allocator()).release(memory); }

  // A block that is in use from now on, or nullptr if there is not enough memory.
  const Block* find(std::size_t requested, driver::Stream& stream) {
    const auto bytes = rounded(requested);
    const std::lock_guard lock(mutex_);
    reuse_finished();
    auto& free = free_[&stream];
    Block block{};
    block.bytes = bytes;
    block.stream = &stream;
    if (const auto it = free.lower_bound(bytes); it != free.end() && it->first <= 2 * bytes) {
      block = std::move(it->second);
      free.erase(it);
    } else {
      block.memory = driver::allocate(stream.device(), bytes);
      if (block.memory == nullptr) return nullptr;
      count(stats_of(block).reserved_bytes, static_cast<std::int64_t>(bytes));
      count(stats_of(block).segment, 1);
    }
    block.requested = requested;
    count_use(block, 1);
    return &used_.emplace(block.memory, std::move(block)).first->second;
  }

  // Called by destructors of tensors, on any thread.
  void release(void* memory) {
    if (memory == nullptr || driver::in_bad_fork()) return;
    const auto bytes = give_back(memory);
    const auto device = static_cast<c10::DeviceIndex>(driver::device_of(memory));
    report(memory, -static_cast<std::int64_t>(bytes), {kAcme, device});
  }

  std::size_t give_back(void* memory) {
    const std::lock_guard lock(mutex_);
    const auto it = used_.find(memory);
    Block block = std::move(it->second);
    used_.erase(it);
    count_use(block, -1);
    const auto bytes = block.bytes;
    for (auto* const user : block.users) block.last_uses.emplace_back().record(*user);
    block.users.clear();
    if (block.last_uses.empty()) {
      add_to_free(std::move(block));
    } else {
      waiting_.push_back(std::move(block));
    }
    return bytes;
  }

  void add_to_free(Block block) {
    block.last_uses.clear();
    free_[block.stream].emplace(block.bytes, std::move(block));
  }

  void reuse_finished() {
    std::vector<Block> still;
    for (auto& block : waiting_) {
      bool finished = true;
      for (const auto& use : block.last_uses) finished = finished && use.query();
      if (finished) {
        add_to_free(std::move(block));
      } else {
        still.push_back(std::move(block));
      }
    }
    waiting_ = std::move(still);
  }

  // For profiles of memory, torch.profiler.profile(profile_memory=True).
  void report(void* memory, std::int64_t bytes, c10::Device device) {
    std::unique_lock lock(mutex_);
    const auto& stats = stats_[device.index()];
    const auto allocated = static_cast<std::size_t>(stats.allocated_bytes[kAll].current);
    const auto reserved = static_cast<std::size_t>(stats.reserved_bytes[kAll].current);
    lock.unlock();
    c10::reportMemoryUsageToProfiler(memory, bytes, allocated, reserved, device);
  }

  DeviceStats& stats_of(const Block& block) { return stats_[block.stream->device()]; }

  static void count(c10::CachingAllocator::StatArray& stats, std::int64_t amount) {
    amount > 0 ? stats[kAll].increase(amount) : stats[kAll].decrease(-amount);
  }
  void count_use(const Block& block, int sign) {
    auto& stats = stats_of(block);
    const auto bytes = sign * static_cast<std::int64_t>(block.bytes);
    count(stats.allocation, sign);
    count(stats.active, sign);
    count(stats.allocated_bytes, bytes);
    count(stats.active_bytes, bytes);
    count(stats.requested_bytes, sign * static_cast<std::int64_t>(block.requested));
  }
  template <class F>
  void for_each_stat(c10::DeviceIndex device, F f) {
    const std::lock_guard lock(mutex_);
    auto& stats = stats_[checked(device)];
    for (auto* const array :
         {&stats.allocation, &stats.segment, &stats.active, &stats.allocated_bytes,
          &stats.reserved_bytes, &stats.active_bytes, &stats.requested_bytes})
      for (auto& stat : *array) f(stat);
  }

  std::mutex mutex_;
  std::unordered_map<void*, Block> used_;
  std::map<driver::Stream*, std::multimap<std::size_t, Block>> free_;
  std::vector<Block> waiting_;  // freed, but another stream may still use them
  std::array<DeviceStats, driver::kDevices> stats_;
};

}  // namespace

// Never destroyed: tensors may outlive static objects.
c10::DeviceAllocator& allocator() {
  static auto& instance = *new Allocator;
  return instance;
}

void record_stream(const c10::DataPtr& data, const c10::Stream& stream) {
  allocator().recordStream(data, stream);
}

REGISTER_ALLOCATOR(kAcme, &allocator());

}  // namespace torch_acme
