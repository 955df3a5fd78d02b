#include "backend/graph.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <mutex>
#include <utility>

#include "address_space/address_space.h"
#include "backend/device.h"
#include "backend/exception.h"
#include "backend/host_allocator.h"
#include "backend/stream.h"
#include "base/device_name.h"
#include "base/settings.h"
#include "memory/command_check.h"
#include "runtime/device_health.h"
#include "runtime/process.h"
#include "slot.h"

namespace openreg::backend {

namespace {

CaptureMode mode_of(at::GraphCaptureMode mode) {
  if (mode == at::GraphCaptureMode::ThreadLocal) return CaptureMode::kThreadLocal;
  return mode == at::GraphCaptureMode::Relaxed ? CaptureMode::kRelaxed : CaptureMode::kGlobal;
}

template <class F>
void for_each_heap(F&& f) {
  for (int device = 0; device < AddressSpace::get().devices(); ++device)
    memory::device_heap(device).locked(std::forward<F>(f));
}

}  // namespace

/// The graph's use of a memory pool on all devices and on the host: memory of the pool stays in
/// place, and serves nothing else, until the last graph with the pool is gone.
class CapturableGraph::PoolUse {
 public:
  explicit PoolUse(c10::MempoolId_t pool) : id_(pool) {
    for_each_heap([&](memory::Heap& heap) { heap.add_use(id_); });
  }
  // These calls throw only if a pool or a route has already ended, and that must end the program.
  // NOLINTNEXTLINE(bugprone-exception-escape)
  ~PoolUse() {
    end_routes();
    if (in_bad_fork() || is_shut_down()) return;
    for_each_heap([&](memory::Heap& heap) { heap.remove_use(id_); });
    if (has_host_pool_) host_allocator().release_pool(id_);
  }
  PoolUse(const PoolUse&) = delete;
  PoolUse& operator=(const PoolUse&) = delete;

  c10::MempoolId_t id() const noexcept { return id_; }

  /// From now on memory for captured streams comes from the pool.
  void begin_routes(CaptureId capture) {
    host_allocator().begin_allocate_to_pool(
        id_, [capture](c10::Stream stream) { return capture_of(to_runtime(stream)) == capture; });
    has_host_pool_ = routes_host_ = true;
    routes_.reserve(static_cast<std::size_t>(AddressSpace::get().devices()));
    for_each_heap([&](memory::Heap& heap) {
      routes_.push_back(heap.add_route(
          id_, [capture](const openreg::Stream& stream) { return capture_of(stream) == capture; }));
    });
  }
  /// Ends what begin_routes() began, which may have failed halfway.
  void end_routes() {
    if (in_bad_fork() || !routes_host_) return;
    routes_host_ = false;
    host_allocator().end_allocate_to_pool(id_);
    for (int device = 0; const int route : std::exchange(routes_, {})) {
      memory::device_heap(device++).locked([&](memory::Heap& heap) { heap.remove_route(route); });
    }
  }

 private:
  const c10::MempoolId_t id_;
  std::vector<int> routes_;  // by device
  bool routes_host_ = false;
  bool has_host_pool_ = false;
};

/// The graphs whose captures are under way. Until a capture ends, the lock also guards its graph's
/// generators: any thread that works on a captured stream may draw from a further generator.
struct CapturableGraph::ActiveCaptures {
  std::mutex mutex;
  std::map<CaptureId, CapturableGraph*> graphs;

  static ActiveCaptures& get() {
    static auto& active = *new ActiveCaptures;  // leaked: graphs may outlive static destruction
    return active;
  }
};

CapturableGraph::CapturableGraph(const at::GraphImplArgs& args) : keeps_graph_(args.keep_graph) {}

CapturableGraph::~CapturableGraph() {
  // A capture that is under way ends with the graph; the stream is usable afterwards.
  if (!in_bad_fork() && !is_shut_down()) {
    try {
      drop_capture();
    } catch (const Error&) {  // the capture belongs to another thread
    }
  }
  forget();
}

void CapturableGraph::drop_capture() {
  if (state_ != State::kCapturing || capture_of(*stream_) != capture_) return;
  try {
    static_cast<void>(end_capture(*stream_));
  } catch (const CaptureError&) {
    if (capture_of(*stream_) == capture_) throw;  // the capture continues
  }
}

void CapturableGraph::capture_begin(c10::MempoolId_t pool, at::GraphCaptureMode capture_mode) {
  TORCH_CHECK(state_ == State::kEmpty,
              "openreg: this graph instance already owns a captured graph; to capture a new graph, "
              "create a new instance, or call reset() first");
  translate_errors([&] {
    auto& stream = current_stream();
    TORCH_CHECK(stream.id() != 0, "openreg: ", kGraphsInProse,
                " must be captured on a non-default stream (got the default stream of ",
                device_name(stream.device()), "); use ", kModule,
                ".graph(), or make another stream current. It may be replayed on the "
                "default stream");
    register_generator_state(default_generator(static_cast<c10::DeviceIndex>(stream.device())));
    if (pool == c10::MempoolId_t{0, 0}) pool = memory::new_pool_id(/*of_graph=*/true);
    auto use = std::make_unique<PoolUse>(pool);
    stream_ = &stream;
    capture_ = begin_capture(stream, mode_of(capture_mode));
    state_ = State::kCapturing;
    pool_ = std::move(use);
    try {
      pool_->begin_routes(capture_);
      for (const auto& generator : generators_) generator->begin_capture(capture_);
      const std::lock_guard lock(ActiveCaptures::get().mutex);
      ActiveCaptures::get().graphs.emplace(capture_, this);
    } catch (...) {
      reset();
      throw;
    }
  });
}

void CapturableGraph::capture_end() {
  TORCH_CHECK(state_ == State::kCapturing,
              "openreg: capture_end() without a capture; call capture_begin() first");
  translate_errors([&] {
    TORCH_CHECK(&current_stream(static_cast<c10::DeviceIndex>(stream_->device())) == stream_,
                "openreg: capture must end on the same stream it began on (got another current "
                "stream, expected stream ",
                stream_->id(), " of ", device_name(stream_->device()), ")");
    if (capture_of(*stream_) != capture_) {  // the stream may take part in a later one
      forget();
      throw CaptureError("openreg: the capture was abandoned; nothing has been captured");
    }
    try {
      graph_ = end_capture(*stream_);
    } catch (const CaptureError&) {
      if (capture_of(*stream_) == capture_) throw;  // the capture continues
      forget();
      throw;
    }
    state_ = State::kCaptured;
    leave();
    for (const auto& generator : generators_) generator->end_capture();
    pool_->end_routes();
    if (graph_.nodes.empty()) {
      TORCH_WARN(
          "openreg: the captured graph is empty. This usually means that the work was launched on "
          "another stream or device than the captured one");
    }
    if (!keeps_graph_) instantiate();
  });
}

void CapturableGraph::expect_captured(const char* what) const {
  TORCH_CHECK(
      state_ == State::kCaptured, "openreg: ", what,
      " without a preceding successful capture; call capture_begin() and capture_end() first");
}

void CapturableGraph::instantiate() {
  expect_captured("instantiate()");
  TORCH_CHECK(
      keeps_graph_ || exec_ == nullptr,
      "openreg: instantiate() was called by capture_end(); to call it yourself, make the graph "
      "with keep_graph=True");
  translate_errors([&] {
    auto cells = std::make_shared<std::vector<std::shared_ptr<CapturedGenerator>>>(generators_);
    if (keeps_graph_) {
      exec_ = GraphExec::make(graph_, std::move(cells));
      return;
    }
    try {
      exec_ = GraphExec::make(std::exchange(graph_, {}), std::move(cells));
    } catch (...) {
      forget();  // a replay would otherwise run nothing
      throw;
    }
  });
}

void CapturableGraph::replay() {
  expect_captured("replay()");
  if (exec_ == nullptr) instantiate();
  translate_errors([&] {
    auto& stream = current_stream(static_cast<c10::DeviceIndex>(stream_->device()));
    const bool captures = capture_of(stream) != 0;
    if (captures) {
      TORCH_CHECK_NOT_IMPLEMENTED(
          std::ranges::all_of(generators_, [](const auto& each) { return each->is_unused(); }),
          "openreg: a graph with random numbers cannot be captured as part of another; capture "
          "its operators instead");
    } else {
      check_healthy(stream.device());  // before the generators advance
    }
    const auto enqueue = [&](NodeFaults faults = {}) {
      if (captures) return capture_graph(stream, exec_->graph());
      std::vector<ReplayParameter> cells;
      for (const auto& generator : generators_) {
        if (!generator->is_unused()) cells.push_back(generator->take());
      }
      exec_->enqueue(stream, std::move(cells), std::move(faults));
    };
    if (memory::checks::any()) {
      const LockGuard lock(replays_);
      memory::Launch launch{.stream = stream,
                            .name = "graph",
                            .graph = capture_,
                            .last = exec_->stream_of_last_run(),
                            .nodes = &exec_->graph()};
      memory::checks::enqueue_checked(launch, [&] { enqueue(std::move(launch.faults)); });
    } else {
      enqueue();
    }
    if (captures || !settings().launch_blocking) return;
    const InternalWaitScope internal;
    stream.synchronize();
  });
}

void CapturableGraph::reset() {
  translate_errors([&] { drop_capture(); });
  forget();
}

void CapturableGraph::leave() noexcept {
  if (capture_ == 0 || in_bad_fork()) return;
  const std::lock_guard lock(ActiveCaptures::get().mutex);
  ActiveCaptures::get().graphs.erase(capture_);
}

void CapturableGraph::forget() noexcept {
  leave();
  generators_.clear();  // they leave the capture, if it is under way
  exec_.reset();
  graph_ = {};
  pool_.reset();
  memory::checks::notify(&memory::CommandCheck::graph_destroyed, capture_);
  capture_ = 0;
  state_ = State::kEmpty;
}

c10::MempoolId_t CapturableGraph::pool() const {
  TORCH_CHECK(
      pool_ != nullptr,
      "openreg: the graph has no memory pool before its capture; call capture_begin() first");
  return pool_->id();
}

void CapturableGraph::debug_dump(const std::string& path) {
  expect_captured("debug_dump()");
  if (!debugs_) {
    TORCH_WARN("openreg: debug_dump() writes nothing unless enable_debug_mode() was called first");
    return;
  }
  std::ofstream file(path);
  write_dot(exec_ != nullptr ? exec_->graph() : graph_, file);
  file.close();
  TORCH_CHECK(file.good(), "openreg: the graph could not be written (got the path \"", path,
              "\", expected one that can be written to)");
}

void CapturableGraph::register_generator_state(const at::Generator& generator) {
  TORCH_CHECK(state_ == State::kEmpty,
              "openreg: register_generator_state() must be called before the capture; call reset() "
              "first, or register the generator with a new graph");
  add_generator(std::make_shared<CapturedGenerator>(generator));
}

void CapturableGraph::register_in_capture(CaptureId capture,
                                          const std::shared_ptr<CapturedGenerator>& generator) {
  auto& active = ActiveCaptures::get();
  const std::lock_guard lock(active.mutex);
  const auto found = active.graphs.find(capture);
  if (found == active.graphs.end()) return;
  if (found->second->add_generator(generator)) generator->begin_capture(capture);
}

bool CapturableGraph::add_generator(const std::shared_ptr<CapturedGenerator>& generator) {
  const bool known =
      std::ranges::any_of(generators_, [&](const auto& each) { return each->is_same(*generator); });
  if (!known) generators_.push_back(generator);
  return !known;
}

}  // namespace openreg::backend

namespace at {

using openreg::backend::CapturableGraph;
OPENREG_REGISTER_GRAPH_IMPL(CapturableGraph);

}  // namespace at
