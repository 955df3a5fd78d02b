#include "backend/allocator.h"

#include <c10/core/AllocatorConfig.h>
#include <c10/util/env.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <set>
#include <string>

#include "base/once.h"
#include "base/settings.h"
#include "memory/device_heap.h"
#include "memory/policy.h"

namespace openreg::backend {

namespace {

using Config = c10::CachingAllocator::AcceleratorAllocatorConfig;

std::atomic<bool> g_cuda_segments{false};
std::atomic<bool> g_follows_settings{false};

bool follows_cuda() { return g_cuda_segments || !computes(); }

// Settings of the heaps, and of PyTorch's host allocator.
bool is_served(const std::string& key) {
  static const std::set<std::string> keys{
      "max_split_size_mb",        "max_non_split_rounding_mb",     "garbage_collection_threshold",
      "roundup_power2_divisions", "pinned_use_background_threads", "pinned_max_round_threshold_mb",
      "pinned_max_cached_size_mb"};
  static const std::set<std::string> cuda_keys{"expandable_segments", "large_segment_size_mb"};
  return keys.contains(key) || (follows_cuda() && cuda_keys.contains(key));
}

// PyTorch's parser accepts any key, because it may belong to another device.
void warn_of_unserved_keys(const std::string& settings) {
  const c10::CachingAllocator::ConfigTokenizer tokens(settings);
  std::string unserved;
  for (std::size_t i = 0; i < tokens.size(); i = tokens.skipKey(i) + 1) {
    if (tokens[i] == ",") ++i;
    if (i >= tokens.size()) break;
    if (!is_served(tokens[i])) unserved += (unserved.empty() ? "" : ", ") + tokens[i];
  }
  if (unserved.empty()) return;
  TORCH_WARN_ONCE("openreg: PYTORCH_ALLOC_CONF has settings that this device ignores (got ",
                  unserved, "); docs/settings.md lists those that have an effect");
}

memory::Policy policy() {
  memory::Policy result;
  if (follows_cuda()) {
    result.segments = Config::use_expandable_segments() ? memory::Segments::kCudaExpandable
                                                        : memory::Segments::kCuda;
  }
  result.large_segment_bytes = Config::large_segment_size();
  result.max_split_bytes = Config::max_split_size();
  result.max_non_split_rounding = Config::max_non_split_rounding_size();
  result.garbage_collection_threshold = Config::garbage_collection_threshold();
  const auto& divisions = Config::roundup_power2_divisions();
  std::copy_n(divisions.begin(), std::min(divisions.size(), result.power2_divisions.size()),
              result.power2_divisions.begin());
  return result;
}

// PyTorch's parser does not name the variable, and rarely says what is wrong with it.
void read_environment() {
  std::string reason;
  try {
    Config::instance();
    return;
  } catch (const c10::ValueError& e) {
    reason = std::string(": ") + e.what_without_backtrace();
  } catch (const std::exception&) {
  }
  for (const char* name : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}) {
    const auto value = c10::utils::get_env(name);
    TORCH_CHECK(!value.has_value(), "openreg: ", name, " is malformed (got ", *value,
                ", expected key:value,..., see docs/settings.md)", reason);
  }
  TORCH_CHECK(false, "openreg: PyTorch's allocator settings are malformed", reason);
}

void apply() {
  const auto present = policy();
  for (int device = 0; device < openreg::device_count(); ++device) {
    memory::device_heap(device).locked([&](memory::Heap& heap) { heap.set_policy(present); });
  }
  warn_of_unserved_keys(Config::last_allocator_settings());
}

}  // namespace

void follow_allocator_settings() {
  static const Once once([] {
    read_environment();
    // There is one hook in a process. In a CUDA build of torch it is CUDA's, which stays in effect.
    auto others = Config::getConfigParserHook();
    Config::registerDeviceConfigParserHook(
        [others](const std::string& settings) {
          if (others) others(settings);
          apply();
        },
        {});
    apply();
    g_follows_settings = true;
  });
}

void use_cuda_segments(bool use) {
  const bool before = g_cuda_segments.exchange(use);
  if (!g_follows_settings) return;
  try {
    apply();
  } catch (...) {
    g_cuda_segments = before;
    apply();  // for the devices that have no memory, and so have changed already
    throw;
  }
}

}  // namespace openreg::backend
