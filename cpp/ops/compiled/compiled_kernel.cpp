#include "ops/compiled/compiled_kernel.h"

#include <ATen/Parallel.h>
#include <c10/core/Storage.h>
#include <c10/util/Exception.h>

#include <dlfcn.h>

#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "address_space/address_space.h"
#include "backend/race_detection.h"
#include "backend/shared_memory.h"
#include "backend/stream.h"
#include "backend/submit.h"
#include "base/device_name.h"
#include "base/error.h"
#include "base/processor.h"
#include "memory/command_check.h"
#include "ops/launch/cost.h"
#include "ops/wire/extent.h"
#include "ops/wire/same_device.h"
#include "slot.h"

namespace openreg::ops {

// Note [Commands of compiled kernels]
//
// A command consists of words: the mode for denormals, then one word for each parameter, then the
// values that the host supplied. The word of a tensor is a device pointer. If it is negative, it is
// the negated number of the command's word at which the tensor's value begins.
namespace {

constexpr std::size_t kHeader = 1;  // words before the parameters'
constexpr std::size_t kWord = sizeof(std::int64_t);

bool is_tensor(Parameter parameter) { return parameter <= Parameter::kWritesSome; }
bool reads(Parameter parameter) { return parameter <= Parameter::kReadsSome; }
bool uses_some(Parameter parameter) {
  return parameter == Parameter::kReadsSome || parameter == Parameter::kWritesSome;
}

std::int64_t resolve(const std::int64_t* words, std::int64_t word) {
  if (word < 0) return reinterpret_cast<std::int64_t>(words - word);
  return reinterpret_cast<std::int64_t>(
      AddressSpace::get().aperture(reinterpret_cast<const void*>(word)));
}

}  // namespace

// For an executor: the library of the code, the name of the function, and the parameters.
std::optional<std::string> CompiledKernel::describe(const Kernel& kernel) {
  const auto& self = static_cast<const CompiledKernel&>(kernel);
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(self.entry_), &info) == 0 || !info.dli_sname)
    return std::nullopt;
  std::string text = std::string(info.dli_fname) + '\n' + info.dli_sname + '\n';
  for (const auto parameter : self.parameters_) text += static_cast<char>(parameter);
  return text;
}

const Kernel* CompiledKernel::make(const std::string& name, const std::string& description) {
  const auto end_of_file = description.find('\n');
  const auto end_of_symbol = description.find('\n', end_of_file + 1);
  void* const library = dlopen(description.substr(0, end_of_file).c_str(), RTLD_NOW);
  if (library == nullptr) return nullptr;
  const auto symbol = description.substr(end_of_file + 1, end_of_symbol - end_of_file - 1);
  void* const entry = dlsym(library, symbol.c_str());
  if (entry == nullptr) return nullptr;
  std::vector<Parameter> parameters;
  for (const char parameter : description.substr(end_of_symbol + 1))
    parameters.push_back(static_cast<Parameter>(parameter));
  return &get(name, reinterpret_cast<Entry>(entry), parameters);
}

const KernelFactory CompiledKernel::kFactory("compiled kernel", &describe, &make);

CompiledKernel::CompiledKernel(const char* name, Entry entry, std::vector<Parameter> parameters)
    : Kernel(name, entry == nullptr ? nullptr : &run, {.in_executor = true, .factory = &kFactory}),
      entry_(entry),
      parameters_(std::move(parameters)) {}

const CompiledKernel& CompiledKernel::get(const std::string& name, Entry entry,
                                          const std::vector<Parameter>& parameters) {
  static auto& kernels = *new std::map<std::string, const CompiledKernel*>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = kernels.try_emplace(name, nullptr);
  if (is_new) found->second = new CompiledKernel(found->first.c_str(), entry, parameters);
  return *found->second;
}

void CompiledKernel::run(const Kernel& kernel, std::span<const std::byte> arguments) {
  const auto& self = static_cast<const CompiledKernel&>(kernel);
  const auto& parameters = self.parameters_;
  if (arguments.size() < (kHeader + parameters.size()) * kWord)
    throw Error("openreg: a command of " + std::string(kernel.name()) + " is too short");
  const auto* const words = reinterpret_cast<const std::int64_t*>(arguments.data());
  set_flush_denormals(words[0] != 0);
  at::internal::lazy_init_num_threads();  // OpenMP's number of threads, for a thread that has not
                                          // used ATen
  c10::SmallVector<std::int64_t, 32> resolved;
  resolved.resize_for_overwrite(parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto word = words[kHeader + i];
    resolved[i] = is_tensor(parameters[i]) ? resolve(words, word) : word;
  }
  self.entry_(resolved.data());
}

CompiledCall::CompiledCall(const CompiledKernel& kernel) : kernel_(kernel) {
  words_.resize(kHeader + kernel.parameters().size());
  words_[0] = flush_denormals();
}

Parameter CompiledCall::next() const {
  const auto& parameters = kernel_.parameters();
  TORCH_CHECK(added_ < parameters.size(), "openreg: too many arguments for ", kernel_.name(),
              " (expected ", parameters.size(), ")");
  return parameters[added_];
}

void CompiledCall::add_word(std::int64_t word) { words_[kHeader + added_++] = word; }

std::int64_t CompiledCall::add_value(const at::TensorBase& cpu_tensor) {
  TORCH_CHECK(reads(next()) && cpu_tensor.dim() == 0, "openreg: ", kernel_.name(),
              " takes tensors of a device (got one of ", cpu_tensor.device(), " with ",
              cpu_tensor.dim(), " dimensions, expected ", kDeviceName, ", or a number to read)");
  const auto at = words_.size();
  words_.resize(at + (cpu_tensor.itemsize() + kWord - 1) / kWord);
  std::memcpy(&words_[at], cpu_tensor.const_data_ptr(), cpu_tensor.itemsize());
  return -static_cast<std::int64_t>(at);
}

void CompiledCall::add(const at::TensorBase& tensor) {
  const auto parameter = next();
  TORCH_CHECK(is_tensor(parameter), "openreg: argument ", added_, " of ", kernel_.name(),
              " must be a number (got a tensor)");
  const auto device = tensor.device();
  if (device.type() != backend::kDeviceType) {
    add_word(add_value(tensor));
    return;
  }
  if (device_.value_or(device) != device) refuse_mixed_devices(kernel_.name(), *device_, device);
  device_ = device;
  expect_memory(tensor);
  const auto& storage = tensor.storage();
  const void* memory = nullptr;
  if (reads(parameter)) {
    backend::note_read(storage);
    memory = storage.data();
  } else {
    memory = storage.mutable_data();  // a lazy clone gets its own memory
  }
  const auto offset = static_cast<std::size_t>(tensor.storage_offset()) * tensor.itemsize();
  bytes_touched_ += tensor.nbytes();
  if (memory && memory::checks::any()) {
    memory_.push_back(backend::use_of(tensor, !reads(parameter)));
    memory_.back().some_elements = uses_some(parameter);
    memory_.back().number = static_cast<std::uint16_t>(added_);
    memory_.back().sizes = memory_.back().strides = {};  // of a tensor that may not outlive this
  }
  add_word(memory ? reinterpret_cast<std::int64_t>(memory) + static_cast<std::int64_t>(offset) : 0);
}

void CompiledCall::add(std::int64_t number) {
  TORCH_CHECK(next() == Parameter::kInteger, "openreg: argument ", added_, " of ", kernel_.name(),
              " cannot be an integer (got ", number, ")");
  add_word(number);
}

void CompiledCall::add(double number) {
  TORCH_CHECK(next() == Parameter::kFloat, "openreg: argument ", added_, " of ", kernel_.name(),
              " cannot be a float (got ", number, ")");
  const auto narrow = static_cast<float>(number);
  std::int64_t word = 0;
  std::memcpy(&word, &narrow, sizeof narrow);
  add_word(word);
}

void CompiledCall::launch() {
  const auto& parameters = kernel_.parameters();
  TORCH_CHECK(added_ == parameters.size(), "openreg: too few arguments for ", kernel_.name(),
              " (got ", added_, ", expected ", parameters.size(), ")");
  backend::submit(backend::current_stream(device_ ? device_->index() : -1), kernel_,
                  std::as_bytes(std::span(words_.data(), words_.size())), [&] { return memory_; },
                  {.counted_as = backend::counters::compiled,
                   .cost = cost_of_bytes(static_cast<double>(bytes_touched_))});
}

}  // namespace openreg::ops
