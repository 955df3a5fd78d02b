#include "memory/race_detector.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/stream.h"
#include "runtime/stream_impl.h"

namespace openreg::memory {

// Note [Detecting races]
// Every command names the memory that it uses before it is queued, with the exact bytes and whether
// it writes. The detector keeps these accesses, each with its submission, and compares a new one
// with those that touch the same bytes. If one of the two writes, and the earlier one does not
// happen before the later one (HappensBefore), it is a race, whether or not the two would have run
// at the same time: the order is what counts, so the same program gives the same report in every
// run.
//
// - The host is an accessor like any other: before it touches device memory it has waited for the
//   current stream, and accesses of other streams that no host has waited for are races.
// - Memory that is freed keeps its accesses. When it serves another tensor, these are compared with
//   that tensor's accesses: so a missing record_stream() is found when it does harm.
// - While a stream is captured, commands are compared within the capture, whose order consists of
//   the graph's edges. A run of the graph is one access to all that its commands use.
// - Commands that use some elements of a tensor, which depend on values (indexing, embeddings), are
//   not compared with each other, and neither are tensors whose common elements are too hard to
//   find (footprint.h): a detector that cries wolf is switched off.

namespace {

constexpr std::size_t kMostReports = 16;

constinit const RaceHooks kNoHooks{};
constinit std::atomic<const RaceHooks*> g_hooks{&kNoHooks};

// By a collective of ranks that are threads, of which one is not so far yet.
bool may_be_ordered(const Accessor& earlier, const Accessor& later) {
  auto* const order = HappensBefore::get();
  return order && (order->may_lie_between(earlier.behind, earlier.thread, later.thread) ||
                   order->may_lie_between(later.behind, earlier.thread, later.thread));
}

// A graph's memory, each piece once: what covers the other stays.
void add_use(std::vector<Access>& uses, const Access& access) {
  for (const auto& known : uses) {
    if (replaces(known.use, access.use)) return;
  }
  std::erase_if(uses, [&](const Access& known) { return replaces(access.use, known.use); });
  uses.push_back(access);
}

}  // namespace

void install_race_hooks(const RaceHooks& hooks) {
  g_hooks = new RaceHooks(hooks);  // never freed: other threads may read it
}

std::atomic<RaceDetector*> RaceDetector::instance_{nullptr};
std::atomic<RaceDetectionMode> RaceDetector::mode_{RaceDetectionMode::kOff};

void RaceDetector::set_mode(RaceDetectionMode mode) {
  static RaceDetector& detector = *new RaceDetector;  // tensors may outlive static destruction
  const bool on = mode != RaceDetectionMode::kOff;
  if (on && !get()) {
    const LockGuard lock(detector.mutex_);
    detector.history_.clear();
    detector.captured_.clear();
    detector.warned_.clear();
    detector.reports_.clear();
  }
  mode_.store(mode, std::memory_order_relaxed);
  HappensBefore::track(on);
  instance_.store(on ? &detector : nullptr, std::memory_order_release);
  on ? checks::add(detector, checks::kRaces) : checks::remove(checks::kRaces);
}

// What the launch uses; by an accessor of which only the thread and what is behind it are missing.
void RaceDetector::find_accesses(Launch& launch) {
  const auto site = launch_site();
  if (launch.graph == 0) {
    const Accessor by{.name = launch.name, .stream = &launch.stream, .site = site};
    launch.by.assign(launch.memory.size(), by);
    return;
  }
  const LockGuard lock(mutex_);
  const auto found = captured_.find(launch.graph);
  if (found == captured_.end()) return;
  found->second.history.clear();  // the capture has ended
  found->second.nodes.clear();
  for (const auto& access : found->second.uses) {
    launch.of_graph.push_back(access.use);
    launch.by.push_back(access.by);
    launch.by.back().stream = &launch.stream;
    launch.by.back().replayed_by = site;
    launch.by.back().in_graph = true;
  }
  launch.memory = launch.of_graph;
}

void RaceDetector::before_enqueue(Launch& launch) {
  auto* const order = HappensBefore::get();
  find_accesses(launch);
  const auto memory = launch.memory;
  if (!order || (launch.graph != 0 && memory.empty())) return;
  if (launch.capture != 0) return check_captured(launch);
  const auto& known = launch.known();
  const bool is_behind = !order->ahead(known).empty();
  for (auto& by : launch.by) {
    by.thread = this_thread_number();
    if (is_behind) by.behind = known;
  }
  expect_order(nullptr, {memory, launch.by, known}, [&]() OPENREG_REQUIRES(mutex_) {
    for (std::size_t i = 0; i < memory.size(); ++i) history_.add(memory[i], launch.by[i], known);
    trim_if_large();
  });
}

// If the command is not enqueued, its accesses are none. If it has been enqueued, and the exception
// is that of a wait for it, a race may be missed.
void RaceDetector::withdrawn(Launch& launch) {
  const auto submission = launch.known().last();
  if (launch.capture != 0 || submission == SubmissionId()) return;
  const LockGuard lock(mutex_);
  history_.withdraw(launch.memory, submission);
}

void RaceDetector::trim_if_large() {
  auto* const order = HappensBefore::get();
  if (!order || history_.size() < trim_at_) return;
  history_.trim(order->seen_by_hosts());
  trim_at_ = std::max<std::size_t>(2 * history_.size(), 1 << 12);
}

void RaceDetector::host_access(const char* op, const MemoryUse& memory) {
  auto* const order = HappensBefore::get();
  if (!order) return;
  const auto seen = order->seen_by_hosts();
  Accessor accessor{.name = op, .site = launch_site(), .thread = this_thread_number()};
  if (!order->ahead(seen).empty()) accessor.behind = seen;
  expect_order(nullptr, {{&memory, 1}, {&accessor, 1}, seen}, [] {});
}

template <class Add>
void RaceDetector::expect_order(const AccessHistory* captured, const Accesses& accesses, Add add) {
  while (true) {
    std::optional<std::pair<Conflict, std::size_t>> found;
    {
      const LockGuard lock(mutex_);
      found = find_conflict(captured ? *captured : history_, accesses);
      if (!found) return add();
    }
    const auto& [conflict, i] = *found;
    report(conflict, accesses.memory[i], accesses.by[i], accesses.known);
  }
}

std::optional<std::pair<Conflict, std::size_t>> RaceDetector::find_conflict(
    const AccessHistory& history, const Accesses& accesses) {
  const bool warns = mode() == RaceDetectionMode::kWarn;
  const std::set<Pair> warned = warns ? warned_ : std::set<Pair>();
  for (std::size_t i = 0; i < accesses.memory.size(); ++i) {
    const auto& by = accesses.by[i];
    const auto pair_with = [&](const Accessor& earlier) {
      return Pair(earlier.name, earlier.site, by.name, by.site);
    };
    const auto skip = [&](const Access& earlier) {
      return may_be_ordered(earlier.by, by) || (warns && warned.contains(pair_with(earlier.by)));
    };
    auto conflict = history.find_conflict(accesses.memory[i], accesses.known, skip);
    if (!conflict) continue;
    if (warns) warned_.insert(pair_with(conflict->earlier.by));
    if (auto block = history_.block_at(conflict->byte)) conflict->block = std::move(block);
    return std::pair(std::move(*conflict), i);
  }
  return std::nullopt;
}

// Describing lines may take the GIL, so it is done without the lock.
void RaceDetector::report(const Conflict& conflict, const MemoryUse& use, const Accessor& by,
                          const VectorClock& known) {
  auto* const order = HappensBefore::get();
  const auto seen = order ? order->seen_by_hosts() : VectorClock();
  const auto& earlier = conflict.earlier;
  const auto stream = earlier.submission.stream;
  const bool in_capture = by.stream && capture_of(*by.stream) != 0;
  const auto* const owner = earlier.block ? earlier.block->stream : nullptr;
  RaceContext context;
  if (by.stream && !in_capture) {
    context.waited_too_early = known.number_of(stream) > seen.number_of(stream);
    context.owner_has_waited =
        order && owner && order->clock_of(*owner).includes(earlier.submission);
  }
  const auto& how = *g_hooks.load();
  const auto text = describe_race(conflict, use, by, context, how.name);
  add_report(text);
  if (mode() != RaceDetectionMode::kWarn || !how.warn) throw RaceError(text);
  how.warn(text);
}

void RaceDetector::check_captured(Launch& launch) {
  const auto before = capture_record(StreamImpl::of(launch.stream));
  auto& known = launch.known();
  const AccessHistory* history = nullptr;
  {
    const LockGuard lock(mutex_);
    auto& captured = captured_[launch.capture];
    history = &captured.history;  // until graph_destroyed(), which comes after the capture
    captured.chains.try_emplace(&launch.stream,
                                static_cast<std::uint32_t>(captured.chains.size() + 1));
    if (before) {
      for (const auto node : before->frontier)
        known.join(clock_of_node(captured, launch.capture, node));
    }
  }
  expect_order(history, {launch.memory, launch.by, known}, [] {});
}

// The node of the graph is known now.
void RaceDetector::enqueued(Launch& launch) {
  if (launch.capture == 0) return;
  const auto after = capture_record(StreamImpl::of(launch.stream));
  if (!after || after->frontier.empty()) return;
  const auto memory = launch.memory;
  if (launch.graph != 0 && memory.empty()) return;
  auto& known = launch.known();
  const LockGuard lock(mutex_);
  auto& captured = captured_[launch.capture];
  known.set_last({captured.chains[&launch.stream], after->frontier.back() + std::uint64_t{1}});
  for (const auto node : after->frontier) captured.nodes[node] = known;
  for (std::size_t i = 0; i < memory.size(); ++i) {
    const auto& by = launch.by[i];
    captured.history.add(memory[i], by, known, history_.block_at(memory[i].footprint.begin()));
    add_use(captured.uses, {memory[i].without_shape(), by, {}, nullptr});
  }
}

// Nodes that use no memory are not seen when they are captured.
const VectorClock& RaceDetector::clock_of_node(Captured& captured, CaptureId capture,
                                               std::uint32_t node) {
  std::vector<std::uint32_t> open{node};
  while (!open.empty()) {
    const auto last = open.back();
    const auto before = captured.nodes.contains(last) ? std::vector<std::uint32_t>()
                                                      : captured_before(capture, last);
    const auto opened = open.size();
    std::ranges::copy_if(before, std::back_inserter(open),
                         [&](std::uint32_t each) { return !captured.nodes.contains(each); });
    if (open.size() > opened) continue;
    open.pop_back();
    auto& clock = captured.nodes[last];
    for (const auto each : before) clock.join(captured.nodes[each]);
  }
  return captured.nodes[node];
}

void RaceDetector::graph_destroyed(CaptureId capture) {
  const LockGuard lock(mutex_);
  captured_.erase(capture);
}

std::string RaceDetector::describe_use(const Accessor& by, const MemoryUse& use) {
  const auto block = [&] {
    const LockGuard lock(mutex_);
    return history_.block_at(use.footprint.begin());
  }();
  return memory::describe_use(by, use, block.get(), g_hooks.load()->name);
}

void RaceDetector::add_report(const std::string& report) {
  const LockGuard lock(mutex_);
  if (reports_.size() < kMostReports) reports_.push_back(report);
}

std::vector<std::string> RaceDetector::take_reports() {
  const LockGuard lock(mutex_);
  return std::exchange(reports_, {});
}

void RaceDetector::allocated(const void* address, std::size_t bytes, const Stream& stream,
                             LaunchSite by) {
  auto block = std::make_shared<AllocationInfo>(
      AllocationInfo{.begin = reinterpret_cast<std::uintptr_t>(address),
                     .bytes = bytes,
                     .kind = BlockKind::kDevice,
                     .stream = &stream,
                     .allocated_by = by});
  const LockGuard lock(mutex_);
  history_.allocate(std::move(block));
}

void RaceDetector::used_by_stream(const void* address, Stream& stream) {
  const LockGuard lock(mutex_);
  history_.record_stream(address, stream);
}

void RaceDetector::reused(const void* memory, std::size_t bytes, BlockKind kind) {
  auto block = std::make_shared<AllocationInfo>(
      AllocationInfo{.begin = reinterpret_cast<std::uintptr_t>(memory),
                     .bytes = bytes,
                     .kind = kind,
                     .allocated_by = launch_site()});
  const LockGuard lock(mutex_);
  history_.forget(memory, bytes);
  history_.allocate(std::move(block));
}

void RaceDetector::forgotten(const void* memory, std::size_t bytes) {
  const LockGuard lock(mutex_);
  history_.forget(memory, bytes);
}

void RaceDetector::freed(const void* address, Where*) {
  const auto site = launch_site();
  const LockGuard lock(mutex_);
  history_.free(address, site);
}

}  // namespace openreg::memory
