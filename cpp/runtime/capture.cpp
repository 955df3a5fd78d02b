#include "runtime/capture.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <thread>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "base/device_name.h"
#include "base/mutex.h"
#include "runtime/device_health.h"
#include "runtime/fence.h"
#include "runtime/process.h"
#include "runtime/stream_impl.h"

namespace openreg {

namespace {

using Frontier = std::vector<std::uint32_t>;

void merge(Frontier& into, const Frontier& from) {
  Frontier both;
  std::ranges::set_union(into, from, std::back_inserter(both));
  into.swap(both);
}

struct Capture {
  struct Branch {
    std::uint32_t lane;
    Frontier frontier;
  };

  StreamImpl* origin;
  CaptureMode mode;
  std::thread::id thread;
  LaunchSite site;  // where it began
  Graph graph;
  std::unordered_map<StreamImpl*, Branch> branches;
  std::vector<std::pair<StreamImpl*, FenceRef>> internal_records;
  std::string invalidated_by;  // empty: the capture is valid

  Branch& branch(StreamImpl& stream) { return branches.at(&stream); }
  Branch& join(StreamImpl& stream) {
    const auto lane = static_cast<std::uint32_t>(graph.lanes.size());
    graph.lanes.push_back({stream.device_index, stream.level});
    return branches.emplace(&stream, Branch{lane, {}}).first->second;
  }
};

// The captures under way. One lock serves all: captures are rare, and a stream can join one from
// any thread.
struct Captures {
  // Never destroyed: streams are used until the process ends.
  static Captures& get() {
    static Captures& captures = *new Captures;
    return captures;
  }

  Capture* find(CaptureId id) OPENREG_REQUIRES(mutex) {
    const auto found = by_id.find(id);
    return found == by_id.end() ? nullptr : &found->second;
  }
  Capture* with(const StreamImpl& stream) OPENREG_REQUIRES(mutex) {
    const auto id = stream.captured_by.load(std::memory_order_relaxed);
    return id == 0 ? nullptr : find(id);
  }

  using ById = std::map<CaptureId, Capture>;
  // Removes a capture; its streams are no longer captured.
  Capture take(ById::iterator found) OPENREG_REQUIRES(mutex);

  Mutex mutex;
  ById by_id OPENREG_GUARDED_BY(mutex);
  CaptureId last OPENREG_GUARDED_BY(mutex) = 0;
};

// Read without the lock: there is almost never a capture.
constinit std::atomic<std::size_t> g_under_way{0};

Capture Captures::take(ById::iterator found) {
  Capture capture = std::move(found->second);
  by_id.erase(found);
  for (const auto& [captured, branch] : capture.branches)
    captured->captured_by.store(0, std::memory_order_relaxed);
  g_under_way.fetch_sub(1, std::memory_order_relaxed);
  return capture;
}

std::string name_of(const StreamImpl& stream) {
  return "stream " + std::to_string(stream.number) + " of " + device_name(stream.device_index);
}

[[noreturn]] void invalidate(Capture& capture, const std::string& sentence) {
  if (capture.invalidated_by.empty()) capture.invalidated_by = sentence;
  throw CaptureError(sentence);
}

std::string not_permitted(const std::string& what, LaunchSite site) {
  return "openreg: operation not permitted when stream is capturing (" + what + launched_by(site) +
         "); do it before the capture, or after it";
}

void expect_valid(const Capture& capture) {
  if (capture.invalidated_by.empty()) return;
  throw CaptureError("openreg: operation failed due to a previous error during capture: " +
                     capture.invalidated_by);
}

// What `use` returns for the stream's capture, under the lock; the default if the stream is not
// captured. Throws if the capture is invalidated.
template <class Use>
std::invoke_result_t<Use, Capture&> with_capture_of(const StreamImpl& stream, Use use) {
  auto& captures = Captures::get();
  const LockGuard lock(captures.mutex);
  auto* const capture = captures.with(stream);
  if (!capture) return std::invoke_result_t<Use, Capture&>();
  expect_valid(*capture);
  return use(*capture);
}

void add_node(Capture& capture, Capture::Branch& branch, Graph::Node node) {
  node.lane = branch.lane;
  node.after = std::move(branch.frontier);
  branch.frontier = {static_cast<std::uint32_t>(capture.graph.nodes.size())};
  capture.graph.nodes.push_back(std::move(node));
}

std::string about_captured_event(const char* what) {
  return std::string(
             "openreg: operation not permitted on an event last recorded in a capturing "
             "stream (") +
         what + "); record it outside of the capture";
}

// Removes the capture that began on the stream.
Capture take_capture(StreamImpl& stream) {
  auto& captures = Captures::get();
  const LockGuard lock(captures.mutex);
  const auto found = captures.by_id.find(capture_of(stream));
  if (found == captures.by_id.end() || found->second.origin != &stream) {
    throw CaptureError("openreg: no capture has begun on " + name_of(stream) +
                       "; a capture ends on the stream that it began on");
  }
  if (found->second.mode != CaptureMode::kRelaxed &&
      found->second.thread != std::this_thread::get_id()) {
    throw CaptureError(
        "openreg: attempt to terminate a thread-local capture sequence from another thread; end "
        "the capture in the thread that began it, or begin it with the mode \"relaxed\"");
  }
  return captures.take(found);
}

// Outside the graph, an internal record covers only the work that its stream has queued by now.
void enqueue_internal_records(const Capture& capture) {
  for (const auto& [stream, fence] : capture.internal_records)
    stream->enqueue_internal_record(fence);
}

/// A node that the end of the graph does not depend on, if there is one.
const Graph::Node* unjoined_node(const Graph& graph) {
  const auto& nodes = graph.nodes;
  std::vector<bool> joined(nodes.size(), false);
  for (const auto end : graph.ends) joined[end] = true;
  for (auto i = nodes.size(); i-- > 0;) {
    if (!joined[i]) return &nodes[i];
    for (const auto before : nodes[i].after) joined[before] = true;
  }
  return nullptr;
}

}  // namespace

CaptureId begin_capture(Stream& stream, CaptureMode mode) {
  check_usable();
  StreamImpl& impl = StreamImpl::of(stream);
  check_healthy(impl.device_index);
  const auto site = launch_site();
  auto& captures = Captures::get();
  const LockGuard lock(captures.mutex);
  if (auto* const other = captures.with(impl))
    invalidate(*other, not_permitted("a capture begins on " + name_of(impl), site));
  const auto id = ++captures.last;
  auto& capture = captures.by_id[id];
  capture.origin = &impl;
  capture.mode = mode;
  capture.thread = std::this_thread::get_id();
  capture.site = site;
  capture.join(impl);
  g_under_way.fetch_add(1, std::memory_order_relaxed);
  impl.captured_by.store(id, std::memory_order_relaxed);
  return id;
}

Graph end_capture(Stream& stream) {
  StreamImpl& impl = StreamImpl::of(stream);
  Capture capture = take_capture(impl);
  enqueue_internal_records(capture);
  expect_valid(capture);
  capture.graph.ends = capture.branch(impl).frontier;
  if (const auto* const left = unjoined_node(capture.graph)) {
    throw CaptureError(
        std::string("openreg: capturing stream has unjoined work (") + left->kernel->name() +
        " on a stream other than the one that the capture began on" + launched_by(left->site) +
        "); make that stream wait for the other before the capture ends");
  }
  return std::move(capture.graph);
}

CaptureId last_capture() {
  auto& captures = Captures::get();
  const LockGuard lock(captures.mutex);
  return captures.last;
}

std::vector<std::string> abandon_captures(CaptureId after) {
  auto& captures = Captures::get();
  std::vector<Capture> abandoned;
  {
    const LockGuard lock(captures.mutex);
    for (auto next = captures.by_id.upper_bound(after); next != captures.by_id.end();)
      abandoned.push_back(captures.take(next++));
  }
  std::vector<std::string> descriptions;
  for (const auto& capture : abandoned) {
    enqueue_internal_records(capture);
    const auto where = describe(capture.site);
    descriptions.push_back("the capture of " + name_of(*capture.origin) +
                           (where.empty() ? where : ", begun by " + where));
  }
  return descriptions;
}

bool is_capturing() noexcept { return g_under_way.load(std::memory_order_relaxed) != 0; }

CaptureId capture_of(const Stream& stream) noexcept {
  return StreamImpl::of(stream).captured_by.load(std::memory_order_relaxed);
}

std::vector<std::uint32_t> captured_before(CaptureId capture, std::uint32_t node) {
  auto& captures = Captures::get();
  const LockGuard lock(captures.mutex);
  const auto* const found = captures.find(capture);
  return found ? found->graph.nodes.at(node).after : std::vector<std::uint32_t>();
}

void capture_graph(Stream& stream, const Graph& graph) {
  StreamImpl& impl = StreamImpl::of(stream);
  with_capture_of(impl, [&](Capture& capture) {
    if (graph.nodes.empty()) return;
    auto& branch = capture.branch(impl);
    auto& into = capture.graph;
    const auto first = static_cast<std::uint32_t>(into.nodes.size());
    // Separate lanes, because those of the capture continue beside them.
    const auto first_lane = static_cast<std::uint32_t>(into.lanes.size());
    into.lanes.insert(into.lanes.end(), graph.lanes.begin() + 1, graph.lanes.end());
    for (Graph::Node node : graph.nodes) {
      node.lane = node.lane == 0 ? branch.lane : first_lane + node.lane - 1;
      for (auto& before : node.after) before += first;
      if (node.after.empty()) node.after = branch.frontier;
      into.nodes.push_back(std::move(node));
    }
    branch.frontier.clear();
    for (const auto end : graph.ends) branch.frontier.push_back(end + first);
  });
}

void expect_not_captured(const Stream& stream, const char* what) {
  if (capture_of(stream) == 0) return;
  const StreamImpl& impl = StreamImpl::of(stream);
  const auto site = launch_site();
  with_capture_of(impl, [&](Capture& capture) {
    invalidate(capture, not_permitted(std::string(what) + " on " + name_of(impl), site));
  });
}

void expect_safe_call(const char* what) {
  if (!is_capturing()) return;
  const auto site = launch_site();
  auto& captures = Captures::get();
  const LockGuard lock(captures.mutex);
  for (auto& [id, capture] : captures.by_id) {
    const bool own = capture.thread == std::this_thread::get_id();
    const bool allowed =
        own ? capture.mode == CaptureMode::kRelaxed : capture.mode != CaptureMode::kGlobal;
    if (allowed) continue;
    const std::string whose = own ? "" : " in another thread";
    invalidate(
        capture,
        not_permitted(what + whose + ", while " + name_of(*capture.origin) + " is captured", site));
  }
}

bool capture_command(StreamImpl& stream, const Kernel& kernel, std::span<const std::byte> arguments,
                     Cost cost, LaunchSite site) {
  return with_capture_of(stream, [&](Capture& capture) {
    if (kernel.traits().once) invalidate(capture, not_permitted(kernel.name(), site));
    add_node(capture, capture.branch(stream),
             {.kernel = &kernel,
              .arguments = {arguments.begin(), arguments.end()},
              .cost = cost,
              .site = site});
    return true;
  });
}

std::shared_ptr<const CapturedPoint> capture_record(StreamImpl& stream) {
  if (capture_of(stream) == 0) return nullptr;
  return with_capture_of(stream, [&](Capture& capture) {
    return std::make_shared<const CapturedPoint>(
        CapturedPoint{capture_of(stream), capture.branch(stream).frontier});
  });
}

bool capture_internal_record(StreamImpl& stream, const FenceRef& fence) {
  if (capture_of(stream) == 0) return false;
  auto& captures = Captures::get();
  const LockGuard lock(captures.mutex);
  auto* const capture = captures.with(stream);
  if (!capture) return false;
  capture->internal_records.emplace_back(&stream, fence);
  return true;
}

void expect_no_foreign_wait(StreamImpl& stream) {
  if (capture_of(stream) == 0) return;
  const auto site = launch_site();
  with_capture_of(stream, [&](Capture& capture) {
    invalidate(capture,
               "openreg: dependency created on uncaptured work in another stream (" +
                   name_of(stream) +
                   " is captured, and waits for an event that was recorded outside of the capture" +
                   launched_by(site) + "); wait before the capture begins");
  });
}

void capture_wait(StreamImpl& stream, const CapturedPoint& point) {
  auto& captures = Captures::get();
  const LockGuard lock(captures.mutex);
  auto* const capture = captures.find(point.capture);
  if (!capture) throw CaptureError(about_captured_event("a stream waits for it"));
  expect_valid(*capture);
  if (auto* const other = captures.with(stream); other && other != capture) {
    invalidate(*capture,
               "openreg: operation would result in a merge of separate capture sequences (" +
                   name_of(stream) +
                   " is captured already, and waits for an event of another capture)");
  }
  const auto found = capture->branches.find(&stream);
  auto& branch = found != capture->branches.end() ? found->second : capture->join(stream);
  merge(branch.frontier, point.frontier);
  stream.captured_by.store(point.capture, std::memory_order_relaxed);
}

void refuse_captured_event(const CapturedPoint& point, const char* what) {
  const auto sentence = about_captured_event(what);
  auto& captures = Captures::get();
  const LockGuard lock(captures.mutex);
  if (auto* const capture = captures.find(point.capture)) invalidate(*capture, sentence);
  throw CaptureError(sentence);
}

}  // namespace openreg
