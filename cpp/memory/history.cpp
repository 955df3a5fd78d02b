#include "memory/history.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace openreg::memory {

namespace {

std::int64_t now_us() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

// Null once the thread's text is destroyed: destructors that run later free memory, too.
constinit thread_local const std::string* t_metadata = nullptr;

struct Metadata {
  ~Metadata() { t_metadata = nullptr; }
  std::string text;
};

}  // namespace

void set_thread_metadata(std::string text) {
  static thread_local Metadata own;
  own.text = std::move(text);
  t_metadata = &own.text;
}

std::string thread_metadata() { return t_metadata == nullptr ? std::string{} : *t_metadata; }

void History::configure(const HistoryOptions& options) {
  auto kept = entries();
  if (options.enabled && kept.size() > options.max_entries) {
    kept.erase(kept.begin(), kept.end() - static_cast<std::ptrdiff_t>(options.max_entries));
  }
  ring_ = std::move(kept);
  oldest_ = 0;
  options_ = options;
}

void History::clear() {
  ring_.clear();
  oldest_ = 0;
}

void History::record(Action action, const void* address, std::size_t bytes, const Stream* stream,
                     PoolId pool, Context context, std::string metadata) {
  const auto bit = std::uint32_t{1} << static_cast<unsigned>(action);
  if (!options_.enabled || options_.max_entries == 0 || (options_.skipped & bit) != 0) return;
  TraceEntry entry{action,  reinterpret_cast<std::uintptr_t>(address),
                   bytes,   stream,
                   pool,    now_us(),
                   nullptr, std::move(metadata)};
  const bool is_free = action == Action::kFreeRequested || action == Action::kFreeCompleted;
  if (is_free ? options_.frees : options_.allocations) entry.context = std::move(context);
  if (ring_.size() < options_.max_entries) {
    ring_.push_back(std::move(entry));
  } else {
    ring_[oldest_] = std::move(entry);
    oldest_ = (oldest_ + 1) % ring_.size();
  }
}

std::vector<TraceEntry> History::entries() const {
  auto result = ring_;
  std::rotate(result.begin(), result.begin() + static_cast<std::ptrdiff_t>(oldest_), result.end());
  return result;
}

}  // namespace openreg::memory
