#pragma once

#include <IActivityProfiler.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>

#include <utility>

// The slot in Kineto, the library behind torch.profiler.

namespace openreg::backend {

/// The category of a call into the runtime in traces.
inline constexpr auto kRuntimeActivity = libkineto::ActivityType::CUDA_RUNTIME;

/// Registers a function that makes a libkineto::IActivityProfiler.
template <class Factory>
void register_activity_profiler(Factory factory) {
  auto& registry = torch::profiler::impl::PrivateUse1ProfilerRegistry::instance();
  registry.registerFactory(std::move(factory));
  // PyTorch passes it on only if a profile has the activities of PrivateUse1.
  registry.onKinetoInit();
}

}  // namespace openreg::backend
