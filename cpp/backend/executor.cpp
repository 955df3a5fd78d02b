// What PyTorch's kernels need in a device's executor (executor/executor.h): the settings of the
// program, its number of threads, its exceptions and warnings. Registers itself.
#include "executor/executor.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iterator>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "backend/clean_state.h"
#include "backend/compute_threads.h"
#include "backend/result_placement.h"
#include "base/error.h"

extern "C" [[gnu::visibility("default")]] void openreg_serve_executor(int socket) {
  openreg::serve_executor(socket);
}

namespace openreg::backend {

namespace {

// --- In the program ---

std::string library_of(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0) throw Error("openreg: the library of the executor is unknown");
  return std::filesystem::absolute(info.dli_fname).string();
}

executor::Program program() {
  const std::string ours = library_of(reinterpret_cast<const void*>(&openreg_serve_executor));
  const std::string torch = library_of(reinterpret_cast<const void*>(&at::globalContext));
  const auto folder = std::filesystem::path(ours).parent_path();
  return {.path = folder / "openreg-executor", .arguments = {torch, ours}};
}

/// Settings of the process that CPU kernels read when they run. Each has a setter, so that a
/// process can be told them; those of the thread travel in the command.
struct ProcessSettings {
  bool deterministic;
  bool deterministic_warn_only;
  bool deterministic_fill;
  bool deterministic_mkldnn;
  bool mkldnn;
  bool nnpack;
  bool warn_always;
  bool fp16_reduction;
  bool sparse_invariants;
  at::QEngine quantized_engine;
  at::Float32Precision precision;  // of all backends
  at::Float32Precision precision_of_mkldnn;
  at::Float32Precision precision_of_convolutions;
  at::Float32Precision precision_of_products;
  at::Float32Precision precision_of_rnns;
  c10::ScalarType default_dtype;

  static ProcessSettings here();
  void use() const;
  bool operator==(const ProcessSettings&) const = default;
};
static_assert(sizeof(ProcessSettings) <= sizeof(ExecutorCallbacks::Settings));

using Backend = at::Float32Backend;
using Op = at::Float32Op;

ProcessSettings ProcessSettings::here() {
  const auto& context = at::globalContext();
  return {.deterministic = context.deterministicAlgorithms(),
          .deterministic_warn_only = context.deterministicAlgorithmsWarnOnly(),
          .deterministic_fill = context.deterministicFillUninitializedMemory(),
          .deterministic_mkldnn = context.deterministicMkldnn(),
          .mkldnn = context.userEnabledMkldnn(),
          .nnpack = context.userEnabledNNPACK(),
          .warn_always = c10::WarningUtils::get_warnAlways(),
          .fp16_reduction = context.allowFP16ReductionCPU(),
          .sparse_invariants = context.checkSparseTensorInvariants().value_or(false),
          .quantized_engine = context.qEngine(),
          .precision = context.float32Precision(Backend::GENERIC, Op::ALL),
          .precision_of_mkldnn = context.float32Precision(Backend::MKLDNN, Op::ALL),
          .precision_of_convolutions = context.float32Precision(Backend::MKLDNN, Op::CONV),
          .precision_of_products = context.float32Precision(Backend::MKLDNN, Op::MATMUL),
          .precision_of_rnns = context.float32Precision(Backend::MKLDNN, Op::RNN),
          .default_dtype = c10::get_default_dtype_as_scalartype()};
}

void ProcessSettings::use() const {
  auto& context = at::globalContext();
  context.setDeterministicAlgorithms(deterministic, deterministic_warn_only);
  context.setDeterministicFillUninitializedMemory(deterministic_fill);
  context.setDeterministicMkldnn(deterministic_mkldnn);
  context.setUserEnabledMkldnn(mkldnn);
  context.setUserEnabledNNPACK(nnpack);
  c10::WarningUtils::set_warnAlways(warn_always);
  context.setAllowFP16ReductionCPU(fp16_reduction);
  context.setCheckSparseTensorInvariants(sparse_invariants);
  context.setQEngine(quantized_engine);
  context.setFloat32Precision(Backend::GENERIC, Op::ALL, precision);
  context.setFloat32Precision(Backend::MKLDNN, Op::ALL, precision_of_mkldnn);
  context.setFloat32Precision(Backend::MKLDNN, Op::CONV, precision_of_convolutions);
  context.setFloat32Precision(Backend::MKLDNN, Op::MATMUL, precision_of_products);
  context.setFloat32Precision(Backend::MKLDNN, Op::RNN, precision_of_rnns);
  c10::set_default_dtype(caffe2::TypeMeta::fromScalarType(default_dtype));
}

ExecutorCallbacks::Settings pack_settings() {
  ExecutorCallbacks::Settings packed{};
  const auto settings = ProcessSettings::here();
  std::memcpy(packed.data(), &settings, sizeof settings);
  return packed;
}

/// A class of exceptions: how the executor recognises one, and how the program throws its like.
struct ErrorKind {
  bool (*is)(const std::exception_ptr& error);
  void (*raise)(const std::string& message);
};

template <class E>
bool is(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const E&) {
    return true;
  } catch (...) {
    return false;
  }
}

template <class E>
void raise(const std::string& message) {
  if constexpr (std::is_base_of_v<c10::Error, E>) {
    throw E(c10::SourceLocation{__func__, __FILE__, __LINE__}, message);
  } else {
    throw E();
  }
}

// Those of which PyTorch makes different exceptions of Python; derived classes first. Any other
// one has the number after the last.
constexpr ErrorKind kErrorKinds[] = {
    {&is<c10::IndexError>, &raise<c10::IndexError>},
    {&is<c10::ValueError>, &raise<c10::ValueError>},
    {&is<c10::TypeError>, &raise<c10::TypeError>},
    {&is<c10::NotImplementedError>, &raise<c10::NotImplementedError>},
    {&is<c10::LinAlgError>, &raise<c10::LinAlgError>},
    {&is<c10::OutOfMemoryError>, &raise<c10::OutOfMemoryError>},
    {&is<c10::Error>, &raise<c10::Error>},
    {&is<std::bad_alloc>, &raise<std::bad_alloc>},
};

void rethrow(std::uint32_t kind, const std::string& message) {
  if (kind < std::size(kErrorKinds)) kErrorKinds[kind].raise(message);
  throw std::runtime_error(message);
}

void warn(const std::string& warnings) {
  for (std::size_t at = 0; at < warnings.size();) {
    const auto end = warnings.find('\0', at);
    TORCH_WARN(warnings.substr(at, end - at));
    at = end + 1;
  }
}

// --- In the executor ---

class CollectedWarnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { text_ += warning.msg() + '\0'; }
  std::string take() { return std::exchange(text_, {}); }

  static CollectedWarnings& of_this_thread() {
    static thread_local CollectedWarnings warnings;
    return warnings;
  }

 private:
  std::string text_;
};

void begin_thread() {
  static_cast<void>(new CleanState);  // for ever: the thread does nothing else
  c10::WarningUtils::set_warning_handler(&CollectedWarnings::of_this_thread());
  use_one_thread();
}

void use_settings(const ExecutorCallbacks::Settings& packed) {
  static std::mutex mutex;
  static std::optional<ProcessSettings> current;
  ProcessSettings settings{};
  std::memcpy(&settings, packed.data(), sizeof settings);
  const std::lock_guard lock(mutex);
  if (current == settings) return;
  settings.use();
  current = settings;
}

std::uint32_t classify(const std::exception_ptr& error) {
  const auto found =
      std::ranges::find_if(kErrorKinds, [&](const ErrorKind& kind) { return kind.is(error); });
  return static_cast<std::uint32_t>(found - std::begin(kErrorKinds));
}

const bool kInstalled = [] {
  install_executor_callbacks({
      .program = &program,
      .threads = &at::get_num_threads,
      .settings = &pack_settings,
      .rethrow = &rethrow,
      .warn = &warn,
      .begin = &ResultPlacement::prepare_process,
      .begin_thread = &begin_thread,
      .use_threads = &use_thread_count,
      .use_settings = &use_settings,
      .classify = &classify,
      .take_warnings = [] { return CollectedWarnings::of_this_thread().take(); },
  });
  return true;
}();

}  // namespace

}  // namespace openreg::backend
