#include "memory/debugger.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

#include "address_space/address_space.h"
#include "base/device_name.h"
#include "base/error.h"
#include "base/once.h"
#include "base/quantity.h"
#include "base/settings.h"
#include "runtime/event.h"
#include "runtime/process.h"
#include "runtime/stream.h"

namespace openreg::memory {

// Note [Debugging memory]
// A block gets kGuardBytes more on either side. Its memory is written and checked by commands on
// its stream, so that they run in order with the program's:
//
// - *prepare*, when it is allocated: the guards get a pattern, and the block gets one that is NaN
//   in all floating-point types. A computation with memory that was never written gives NaN.
// - *release*, when it is freed: the guards must be intact. Then the whole block gets another
//   pattern, which is also NaN.
// - *check*, when its memory becomes part of another block: the pattern of release must be intact;
//   otherwise there was a write after the free.
//
// A command that finds an error fails, as a kernel does: the stream's next synchronisation raises
// it. A synchronisation of the device also checks the guards of all blocks. A command that would
// use freed memory is refused at the call.
//
// *Uses by other streams.* A block may be freed while another stream still uses it: its stream may
// wait for that one later, before the memory is used again. Whether it does is a question of order
// (HappensBefore), not of time. So each block knows the newest use by each other stream. If the
// block's stream has waited for all of them, at the free or else when the memory becomes part of
// another block, the commands above can run. Otherwise the memory stays as it is, and the uses are
// handed down to the block that has the memory then: a command that uses this one is refused unless
// its stream has waited for them.
//
// Memory that goes back to the device is forgotten. A poisoned stream skips the commands above;
// what they did not write is not checked.

namespace {

constexpr std::size_t kGuardBytes = kBlockBytes;
constexpr int kGuardByte = 0xA5;
constexpr int kFreshByte = 0xFF;
constexpr std::uint16_t kFreedPattern = 0x7FFB;  // as float, double, half and bfloat16: NaN

// Commands can rely on the process's debugger, which is never destroyed.
template <class T>
T* in_aperture(T* address) {
  return static_cast<T*>(AddressSpace::get().aperture(address));
}

bool holds(const std::byte* begin, const std::byte* end, int byte) {
  return std::all_of(begin, end, [&](std::byte b) { return b == static_cast<std::byte>(byte); });
}

void fill_freed(std::byte* begin, std::byte* end) {
  auto* words = reinterpret_cast<std::uint16_t*>(begin);
  std::fill(words, words + (end - begin) / 2, kFreedPattern);
}

bool holds_freed(const std::byte* begin, const std::byte* end) {
  const auto* words = reinterpret_cast<const std::uint16_t*>(begin);
  return std::all_of(words, words + (end - begin) / 2,
                     [](std::uint16_t w) { return w == kFreedPattern; });
}

std::string indented(const std::string& text) {
  std::string result = "    ";
  for (const char c : text) {
    result += c;
    if (c == '\n') result += "    ";
  }
  return result;
}

void print_leaks(Debugger& debugger) {
  if (in_bad_fork()) return;
  const std::string leaks = debugger.describe_leaks();
  if (!leaks.empty()) std::fprintf(stderr, "%s\n", leaks.c_str());
}

}  // namespace

std::atomic<Debugger*> Debugger::instance_{nullptr};

void Debugger::start_if_enabled() {
  if (!settings().debug_memory) return;
  static const Once once([] {
    HappensBefore::track_always();
    auto& debugger = *new Debugger;  // leaked: tensors may outlive static destruction
    instance_ = &debugger;
    checks::add(debugger, checks::kMemory);
    std::atexit([] { print_leaks(*get()); });
  });
}

std::string Debugger::Record::describe() const {
  std::string text = format_count(bytes, "byte") + " on " + device_name(stream->device()) +
                     ", stream " + std::to_string(stream->id()) + ", allocated at\n" +
                     indented(allocated_at);
  if (!freed_at.empty()) text += "\n  and freed at\n" + indented(freed_at);
  return text;
}

// --- Commands ---

struct Debugger::Arguments {
  std::uint64_t id;
  std::byte* begin = nullptr;
  std::byte* end = nullptr;

  explicit Arguments(std::uint64_t id, std::byte* begin = nullptr, std::byte* end = nullptr)
      : id(id), begin(begin), end(end) {}
  explicit Arguments(std::span<const std::byte> bytes) {
    std::memcpy(this, bytes.data(), sizeof *this);
  }
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(this, 1)); }
};

// None if, during a capture, the block has been freed or its memory given to a graph: neither
// enqueues a command, so neither waits for the commands of the block that are still queued.
std::optional<Debugger::Record> Debugger::record_of(std::uint64_t id) {
  const LockGuard lock(mutex_);
  const auto found = records_.find(id);
  return found == records_.end() ? std::nullopt : std::optional(found->second);
}

template <class F>
void Debugger::update(std::uint64_t id, F f) {
  const LockGuard lock(mutex_);
  const auto found = records_.find(id);
  if (found != records_.end()) f(found->second);
}

void Debugger::run_prepare(const Kernel&, std::span<const std::byte> bytes) {
  auto& self = *get();
  const Arguments arguments(bytes);
  const auto record = self.record_of(arguments.id);
  if (!record) return;
  std::byte* const block = in_aperture(record->block);
  std::memset(block, kGuardByte, record->block_bytes);
  std::memset(block + kGuardBytes, kFreshByte, record->bytes);
  self.update(arguments.id, [](Record& present) { present.guarded = true; });
}

void Debugger::run_release(const Kernel&, std::span<const std::byte> bytes) {
  auto& self = *get();
  const Arguments arguments(bytes);
  const auto record = self.record_of(arguments.id);
  if (!record) return;
  const std::string error = record->guarded ? self.broken_guard(*record) : "";
  self.update(arguments.id, [](Record& present) {
    present.guarded = false;
    present.filled = present.is_ours();
  });
  std::byte* const block = in_aperture(record->block);
  if (record->is_ours()) fill_freed(block, block + record->block_bytes);
  if (!error.empty()) throw Error(error);
}

void Debugger::run_check_freed(const Kernel&, std::span<const std::byte> bytes) {
  auto& self = *get();
  const Arguments arguments(bytes);
  const auto record = self.record_of(arguments.id).value();  // this command counts as a range
  {
    const LockGuard lock(self.mutex_);
    self.drop_range(arguments.id);
  }
  if (!record.filled) return;
  if (!holds_freed(in_aperture(arguments.begin), in_aperture(arguments.end - 1) + 1))
    throw Error("openreg: use after free: freed memory was written: " + record.describe());
}

void Debugger::skip_check_freed(std::span<const std::byte> bytes) noexcept {
  auto& self = *get();
  const LockGuard lock(self.mutex_);
  self.drop_range(Arguments(bytes).id);
}

void Debugger::drop_range(std::uint64_t id) {
  if (--records_.at(id).ranges == 0) records_.erase(id);
}

// Describes what is wrong with a record's guards; empty if they are intact.
std::string Debugger::broken_guard(const Record& record) const {
  const std::byte* const block = in_aperture(record.block);
  const std::byte* const data = block + kGuardBytes;
  const std::byte* const end = block + record.block_bytes;
  if (!holds(block, data, kGuardByte))
    return "openreg: buffer underflow: memory before the start of a block was written: " +
           record.describe();
  if (!holds(data + record.bytes, end, kGuardByte))
    return "openreg: buffer overflow: memory past the end of a block was written: " +
           record.describe();
  return "";
}

// --- On the host ---

std::size_t Debugger::guard_bytes() const { return kGuardBytes; }

// In each run a graph's own memory is used by one tensor after another: the checks, each for one
// block, cannot be nodes of the graph.
std::string Debugger::before_allocation(Stream& stream) {
  if (capture_of(stream) == 0) stream.wait_for_room();  // fails before a block would be lost
  return {};
}

void Debugger::allocated(const NewBlock& made) {
  auto& stream = made.stream;
  const bool captured = capture_of(stream) != 0;
  const auto known = HappensBefore::get()->clock_of(stream);
  auto where = made.where();
  std::vector<Check> checks;
  std::uint64_t id = 0;
  bool is_ours = true;
  {
    const LockGuard lock(mutex_);
    checks = take_freed(made.block, made.block + made.block_bytes);
    auto uses = captured ? Uses() : uses_of(checks, known);
    is_ours = uses.empty();
    id = ++last_id_;
    held_[made.address] = id;
    records_.emplace(id, Record{.block = made.block,
                                .block_bytes = made.block_bytes,
                                .bytes = made.bytes,
                                .stream = &stream,
                                .allocated_at = std::move(where),
                                .captured = captured,
                                .earlier_uses = std::move(uses)});
    if (captured) {
      for (const auto& [begin, end, old] : checks) drop_range(old);
    }
  }
  if (captured) return;
  static const Kernel check("openreg::debug_check_freed_memory", &run_check_freed,
                            {.skip = &skip_check_freed});
  for (const auto& [begin, end, old] : checks)
    stream.enqueue(check, Arguments(old, begin, end).bytes(), {}, Backpressure::kIgnore);
  static const Kernel prepare("openreg::debug_prepare_block", &run_prepare);
  if (is_ours) stream.enqueue(prepare, Arguments(id).bytes(), {}, Backpressure::kIgnore);
}

// The uses of freed memory for which a stream that knows this has not waited.
Debugger::Uses Debugger::uses_of(const std::vector<Check>& freed, const VectorClock& known) {
  Uses uses;
  for (const auto& [begin, end, id] : freed) {
    for (const auto& use : records_.at(id).earlier_uses) {
      const bool is_new = std::ranges::find(uses, use.submission, &Use::submission) == uses.end();
      if (is_new && !known.includes(use.submission)) uses.push_back(use);
    }
  }
  return uses;
}

// Removes [begin, end) from what is known to be freed, and returns the pieces, each of which is to
// be checked.
std::vector<Debugger::Check> Debugger::take_freed(std::byte* begin, std::byte* end) {
  std::vector<Check> checks;
  auto it = freed_.upper_bound(begin);
  if (it != freed_.begin()) --it;
  while (it != freed_.end() && it->first < end) {
    std::byte* const first = it->first;
    const auto [last, id] = it->second;
    if (last <= begin) {
      ++it;
      continue;
    }
    it = freed_.erase(it);
    auto& ranges = records_.at(id).ranges;
    if (first < begin) {
      freed_[first] = {begin, id};
      ++ranges;
    }
    if (last > end) {
      it = freed_.emplace(end, Range{last, id}).first;
      ++ranges;
    }
    checks.push_back({std::max(first, begin), std::min(last, end), id});
  }
  return checks;
}

void Debugger::freed(const void* address, Where* where) {
  auto text = where();
  std::uint64_t id = 0;
  Record record;
  {
    const LockGuard lock(mutex_);
    const auto found = held_.find(static_cast<const std::byte*>(address));
    if (found == held_.end()) return;
    id = found->second;
    held_.erase(found);
    records_.at(id).freed_at = std::move(text);
    record = records_.at(id);
  }
  if (record.captured || capture_of(*record.stream) != 0) {
    const LockGuard lock(mutex_);
    records_.erase(id);
    return;
  }
  // The streams of record_stream() may still use the block, so it is filled when they are done.
  for (auto* user : record.recorded) {
    wait_stream_internal(*record.stream, *user, Backpressure::kIgnore);
  }
  for (auto& use : record.foreign_uses) use.block = record.describe();
  auto& unfinished = record.earlier_uses;
  std::ranges::move(record.foreign_uses, std::back_inserter(unfinished));
  std::erase_if(unfinished, [known = HappensBefore::get()->clock_of(*record.stream)](
                                const Use& use) { return known.includes(use.submission); });
  update(id, [&](Record& present) { present.earlier_uses = std::move(unfinished); });
  static const Kernel release("openreg::debug_release_block", &run_release);
  record.stream->enqueue(release, Arguments(id).bytes(), {}, Backpressure::kIgnore);
  const LockGuard lock(mutex_);
  freed_[record.block] = {record.block + record.block_bytes, id};
  records_.at(id).ranges = 1;
}

void Debugger::used_by_stream(const void* address, Stream& stream) {
  const LockGuard lock(mutex_);
  const auto found = held_.find(static_cast<const std::byte*>(address));
  if (found == held_.end()) return;
  auto& record = records_.at(found->second);
  if (&stream != record.stream &&
      std::ranges::find(record.recorded, &stream) == record.recorded.end())
    record.recorded.push_back(&stream);
}

const void* Debugger::block_of(const void* address) {
  const LockGuard lock(mutex_);
  const auto found = held_.find(static_cast<const std::byte*>(address));
  return found == held_.end() ? address : records_.at(found->second).block;
}

// `known`: what the access comes after; null in a capture, where the run of the graph is one.
void Debugger::check_held(const char* kernel, std::span<const MemoryUse> memory,
                          const VectorClock* known) {
  const LockGuard lock(mutex_);
  for (const auto& use : memory) {
    const auto* const data = static_cast<const std::byte*>(use.storage);
    if (const auto held = held_.find(data); held != held_.end()) {
      if (known != nullptr) records_.at(held->second).expect_unused(kernel, *known);
      continue;
    }
    const auto after = freed_.upper_bound(const_cast<std::byte*>(data));
    if (after == freed_.begin()) continue;
    const auto& [end, id] = std::prev(after)->second;
    if (data >= end) continue;
    throw Error(std::string("openreg: ") + kernel +
                " was called with memory that has been freed: " + records_.at(id).describe());
  }
}

void Debugger::Record::expect_unused(const char* kernel, const VectorClock& known) const {
  auto& order = *HappensBefore::get();
  for (const auto& use : earlier_uses) {
    if (known.includes(use.submission) ||
        order.may_lie_between(known, use.thread, this_thread_number()))
      continue;
    throw Error(
        std::string("openreg: ") + kernel + " was called with memory that was freed while " +
        "stream " + std::to_string(use.stream->id()) + " of " + device_name(use.stream->device()) +
        " still used it; call record_stream() first, or wait for that stream: " + use.block);
  }
}

void Debugger::host_access(const char* op, const MemoryUse& memory) {
  const auto seen = HappensBefore::get()->seen_by_hosts();
  check_held(op, {&memory, 1}, &seen);
}

void Debugger::before_enqueue(Launch& launch) {
  check_held(launch.name, launch.memory, launch.capture == 0 ? &launch.known() : nullptr);
}

void Debugger::before_replay(Launch& launch) {
  const auto& known = launch.known();
  const LockGuard lock(mutex_);
  const auto uses = used_by(launch);
  for (const auto& [id, kernel] : uses) {
    const auto record = records_.find(id);
    const bool gone = record == records_.end();
    if (!gone && record->second.freed_at.empty()) continue;
    throw Error(
        std::string("openreg: a graph runs ") + kernel +
        " with memory that has been freed since it was captured; keep the tensor as long as "
        "the graph" +
        (gone ? "" : ": " + record->second.describe()));
  }
  if (launch.capture != 0) return;
  for (const auto& [id, kernel] : uses) records_.at(id).expect_unused(kernel, known);
}

// The records of blocks that it uses, each with a kernel that does.
std::map<std::uint64_t, const char*> Debugger::used_by(const Launch& launch) {
  std::map<std::uint64_t, const char*> used;
  if (launch.graph != 0) {
    const auto found = used_by_graphs_.find(launch.graph);
    return found == used_by_graphs_.end() ? used : found->second;
  }
  for (const auto& use : launch.memory) {
    const auto held = held_.find(static_cast<const std::byte*>(use.storage));
    if (held != held_.end()) used.emplace(held->second, launch.name);
  }
  return used;
}

// The submission was numbered before the command was enqueued: what is recorded from now on comes
// after it.
void Debugger::enqueued(Launch& launch) {
  const auto submission = launch.known().last();
  const LockGuard lock(mutex_);
  for (const auto& [id, kernel] : used_by(launch)) {
    const auto found = records_.find(id);
    if (found == records_.end()) continue;
    if (launch.capture != 0) {
      if (!found->second.captured) used_by_graphs_[launch.capture].emplace(id, kernel);
      continue;
    }
    if (found->second.stream == &launch.stream) continue;
    auto& uses = found->second.foreign_uses;
    std::erase_if(uses, [&](const Use& use) { return use.stream == &launch.stream; });
    uses.push_back(
        {.stream = &launch.stream, .submission = submission, .thread = this_thread_number()});
  }
}

void Debugger::graph_destroyed(CaptureId capture) {
  const LockGuard lock(mutex_);
  used_by_graphs_.erase(capture);
}

void Debugger::host_waited(int device) {
  const LockGuard lock(mutex_);
  for (const auto& [data, id] : held_) {
    auto& record = records_.at(id);
    if (record.stream->device() != device || !record.guarded) continue;
    const std::string error = broken_guard(record);
    if (error.empty()) continue;
    record.guarded = false;  // reported once
    throw Error(error);
  }
}

void Debugger::overwritten(int device) {
  const LockGuard lock(mutex_);
  for (auto& [id, record] : records_) {
    if (record.stream->device() == device) record.guarded = record.filled = false;
  }
}

void Debugger::forgotten(const void* memory, std::size_t bytes) {
  auto* const begin = static_cast<std::byte*>(const_cast<void*>(memory));
  const LockGuard lock(mutex_);
  for (const auto& [first, last, id] : take_freed(begin, begin + bytes)) drop_range(id);
}

void Debugger::abandoned(const void* address) {
  const LockGuard lock(mutex_);
  held_.erase(static_cast<const std::byte*>(address));
}

std::string Debugger::describe_leaks() {
  const LockGuard lock(mutex_);
  if (held_.empty()) return "";
  std::string text = "openreg: " + format_count(held_.size(), "block") + " of device memory " +
                     (held_.size() == 1 ? "was" : "were") + " not freed:";
  for (const auto& [data, id] : held_) text += "\n  " + records_.at(id).describe();
  return text;
}

}  // namespace openreg::memory
