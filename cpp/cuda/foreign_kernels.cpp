#include "cuda/foreign_kernels.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "ops/tiers/dispatch.h"
#include "slot.h"

namespace openreg::backend {

namespace {

constexpr std::array kKeys{c10::DispatchKey::CUDA, c10::DispatchKey::SparseCUDA,
                           c10::DispatchKey::SparseCsrCUDA, c10::DispatchKey::QuantizedCUDA,
                           c10::DispatchKey::NestedTensorCUDA};

struct Less {
  bool operator()(const auto& a, const auto& b) const {
    return std::tie(a.first, a.second.name, a.second.overload_name) <
           std::tie(b.first, b.second.name, b.second.overload_name);
  }
};

/// What is known, by the thread that holds the mutex.
struct Known {
  std::mutex mutex;
  unsigned long long loaded = 0;  // libraries that have ever been loaded, as dl_iterate_phdr counts
  std::set<ElfW(Addr)> seen;      // where libraries lie
  std::map<std::pair<c10::DispatchKey, c10::OperatorName>, c10::SafeKernelFunction, Less> kernels;
  std::vector<torch::Library> replacements;
};

Known& known() {
  static auto& all = *new Known;
  return all;
}

/// Whether a library asks the loader for one of PyTorch's.
bool uses_torch(const dl_phdr_info& info) {
  const char* strings = nullptr;
  std::vector<std::uint64_t> needed;
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    if (info.dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    const auto* entry =
        reinterpret_cast<const ElfW(Dyn)*>(info.dlpi_addr + info.dlpi_phdr[i].p_vaddr);
    for (; entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == DT_STRTAB) strings = reinterpret_cast<const char*>(entry->d_un.d_ptr);
      if (entry->d_tag == DT_NEEDED) needed.push_back(entry->d_un.d_val);
    }
  }
  return strings != nullptr && std::ranges::any_of(needed, [strings](std::uint64_t offset) {
           const std::string_view name(strings + offset);
           return name.starts_with("libtorch") || name.starts_with("libc10");
         });
}

struct Search {
  Known& known;
  bool found = false;
};

int look_at(dl_phdr_info* info, std::size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  if (info->dlpi_adds == search.known.loaded) return 1;  // nothing new
  if (search.known.seen.insert(info->dlpi_addr).second && uses_torch(*info)) search.found = true;
  return 0;
}

int count_loads(dl_phdr_info* info, std::size_t, void* data) {
  *static_cast<unsigned long long*>(data) = info->dlpi_adds;
  return 1;
}

/// torch.library registers with the file of the Python code, if any: "x.py", "<stdin>".
bool is_of_python(std::string_view registered) {
  const auto file = registered.substr(0, registered.find_last_of(':'));
  return file.ends_with(".py") || file.ends_with('>');
}

void refuse(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      ops::call_fake(op, stack), "openreg: ", op.operator_name(),
      " has a kernel for CUDA, which needs a GPU, and none for the CPU that could run instead: "
      "CUDA is emulated on the CPU here");
}

/// The kernel that a library has overridden.
class Overridden final : public c10::OperatorKernel {
 public:
  explicit Overridden(c10::SafeKernelFunction kernel) : kernel_(std::move(kernel)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
    kernel_.callBoxed(op, keys, stack);
  }

 private:
  c10::SafeKernelFunction kernel_;
};

torch::CppFunction replacement(const c10::OperatorHandle& op,
                               const c10::SafeKernelFunction* overridden) {
  if (overridden != nullptr)
    return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Overridden>(*overridden));
  if (op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU))
    return torch::CppFunction::makeFromBoxedFunction<&ops::fallback>();
  return torch::CppFunction::makeFromBoxedFunction<&refuse>();
}

void replace(Known& all, c10::DispatchKey key, const c10::OperatorHandle& op,
             const c10::SafeKernelFunction* overridden) {
  const auto name = c10::toString(op.operator_name());
  const auto colons = name.find("::");
  auto& library = all.replacements.emplace_back(torch::Library::IMPL, name.substr(0, colons), key,
                                                __FILE__, static_cast<std::uint32_t>(__LINE__));
  library.impl(name.substr(colons + 2).c_str(), replacement(op, overridden));
}

}  // namespace

bool libraries_were_loaded() {
  auto& all = known();
  const std::lock_guard lock(all.mutex);
  Search search{all};
  ::dl_iterate_phdr(&look_at, &search);
  ::dl_iterate_phdr(&count_loads, &all.loaded);
  return search.found;
}

std::vector<std::string> replace_foreign_kernels() {
  auto& all = known();
  const std::lock_guard lock(all.mutex);
  const bool first = all.kernels.empty();
  std::vector<std::string> replaced;
  for (const auto key : kKeys) {
    for (const auto& name : c10::Dispatcher::singleton().getRegistrationsForDispatchKey(key)) {
      const auto op = c10::Dispatcher::singleton().findOp(name);
      if (!op || !op->hasKernelForDispatchKey(key)) continue;
      auto kernel = op->getComputedKernelForDispatchKey(key);
      const auto [noted, is_new] = all.kernels.try_emplace({key, name}, kernel);
      if (first || (!is_new && noted->second.debug() == kernel.debug())) continue;
      if (is_of_python(kernel.debug())) {
        noted->second = std::move(kernel);
        continue;
      }
      replace(all, key, *op, is_new ? nullptr : &noted->second);
      noted->second = op->getComputedKernelForDispatchKey(key);
      replaced.push_back(c10::toString(name));
    }
  }
  return replaced;
}

}  // namespace openreg::backend
