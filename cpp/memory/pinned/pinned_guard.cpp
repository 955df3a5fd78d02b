#include "memory/pinned/pinned_guard.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "address_space/signal_text.h"
#include "memory/race_detector.h"
#include "runtime/callbacks.h"
#include "runtime/process.h"
#include "slot_name.h"

namespace openreg::memory {

// Note [Guarded pinned memory]
// A page is PROT_NONE if commands that are pending write all of it, and PROT_READ if they write or
// read all of it. The device uses its own window (pinned_windows.h) and is not concerned.
//
// *No false alarms.* Pages are coarser than accesses. If a page also holds bytes of the program
// that no pending command uses, it stays open, and an error there is missed. Otherwise a correct
// program could meet the protection in places that no handler can repair: a system call fails, a
// thread may block the signal, and the program may install its own handler. Each block has pages of
// its own, and what is behind the bytes that were requested is unused. So the memory of a
// tensor that is copied as a whole is guarded as a whole, however small it is.
//
// A host that has seen the completion may be faster than the thread that opens the pages for it, so
// the handler asks HappensBefore.
//
// *No endless faults.* If a page cannot be opened, or closes again and again although no copy is
// submitted, the fault goes to the others.
//
// *Signal handlers* read what is published, which does not change. The fault is not asynchronous:
// the thread is at an instruction that accesses pinned memory, and no code that holds a lock of the
// allocator, of this library or of Python does that. So the handler may take such a lock, which
// another thread will release.
namespace {

std::uintptr_t end_of_page(std::uintptr_t last) noexcept {
  return PinnedWindows::page_of(last) + PinnedWindows::page_size();
}

bool set_protection(std::uintptr_t begin, std::uintptr_t end, int protection) noexcept {
  return ::mprotect(reinterpret_cast<void*>(begin), end - begin, protection) == 0;
}

constexpr int kOpen = PROT_READ | PROT_WRITE;
constexpr int kMostFaultsInVain = 1 << 16;  // more than other threads' copies can cause

// Whether each byte of [begin, end) is one of these copies, which are sorted by their first bytes.
bool cover(const std::vector<const PendingCopy*>& copies, std::uintptr_t begin, std::uintptr_t end,
           bool only_written) {
  const auto counts = [&](const PendingCopy* copy) { return copy->written || !only_written; };
  auto next = copies.begin();
  while (begin < end) {
    auto reached = begin;
    for (; next != copies.end() && (*next)->footprint.begin() <= reached; ++next) {
      if (counts(*next) && (*next)->footprint.is_contiguous())
        reached = std::max(reached, (*next)->footprint.end());
    }
    for (auto copy = copies.begin(); reached == begin && copy != next; ++copy) {
      if (counts(*copy)) reached = (*copy)->footprint.end_of_run_at(begin).value_or(begin);
    }
    if (reached == begin) return false;
    begin = reached;
  }
  return true;
}

// If the kernel has no room for one more mapping, all of the block needs fewer. False: this is not
// the memory that it was.
bool open_pages(PinnedWindows::Block block, std::uintptr_t begin, std::uintptr_t end) noexcept {
  return set_protection(begin, end, kOpen) || set_protection(block.begin, block.end, kOpen);
}

bool hosts_have_seen(SubmissionId submission) {
  auto* const order = HappensBefore::get();
  return order == nullptr || order->seen_by_hosts().includes(submission);
}

const char* verb_of(FaultAccess did) noexcept {
  switch (did) {
    case FaultAccess::kRead:
      return "read";
    case FaultAccess::kWrite:
      return "wrote to";
    default:
      return "accessed";
  }
}

}  // namespace

std::atomic<PinnedGuard*> PinnedGuard::instance_{nullptr};

PinnedGuard& PinnedGuard::instance() {
  static PinnedGuard& guard = *new PinnedGuard;  // used until the process ends
  return guard;
}

void PinnedGuard::switch_on(Reaction reaction) {
  if (!kAvailable) return;
  auto& guard = instance();
  guard.reaction_ = reaction;
  PinnedWindows::page_size();
  install_callbacks({.on_host_progress = [] {
    if (auto* const guard = get()) guard->release_seen();
  }});
  set_fault_handler(&PinnedGuard::handle_fault);
  instance_.store(&guard, std::memory_order_release);
  checks::add(guard, checks::kPinned);
}

void PinnedGuard::switch_off() {
  if (instance_.exchange(nullptr) == nullptr) return;
  checks::remove(checks::kPinned);
  auto& guard = instance();
  const LockGuard lock(guard.mutex_);
  guard.open(guard.pending_.take_all());
}

void PinnedGuard::set_reporter(Reporter reporter) noexcept { instance().reporter_ = reporter; }

void PinnedGuard::before_enqueue(Launch& launch) {
  auto* const detector = RaceDetector::get();
  if (detector == nullptr || launch.capture != 0) return;
  for (std::size_t i = 0; i < launch.by.size(); ++i) {
    const auto& use = launch.memory[i];
    if (use.pinned)
      protect(use.footprint, use.writes, launch.known().last(),
              detector->describe_use(launch.by[i], use));
  }
}

void PinnedGuard::withdrawn(Launch& launch) {
  if (launch.capture == 0 && std::ranges::any_of(launch.memory, &MemoryUse::pinned))
    withdraw(launch.known().last());
}

void PinnedGuard::protect(const Footprint& footprint, bool written, SubmissionId submission,
                          std::string description) {
  const auto* const windows = PinnedWindows::get_if_made();
  if (windows == nullptr || footprint.empty()) return;
  const auto block = windows->block_of(footprint.begin());
  if (footprint.end() > block.end) return;
  auto copy =
      std::make_shared<PendingCopy>(block, footprint, written, submission, std::move(description));
  // Before handlers that were installed in the meantime.
  const bool is_asked = set_fault_handler(&PinnedGuard::handle_fault);

  const LockGuard lock(mutex_);
  if (!is_asked) return open(pending_.take_all());
  const auto begin = copy->first_page;
  const auto end = copy->end_of_pages;
  auto gone = pending_.add(std::move(copy));
  open(std::move(gone));
  apply(block, begin, end);
}

void PinnedGuard::withdraw(SubmissionId submission) {
  const LockGuard lock(mutex_);
  open(pending_.take(submission));
}

void PinnedGuard::release_seen() {
  auto* const order = HappensBefore::get();
  if (order == nullptr) return;
  const auto seen = order->seen_by_hosts();
  const LockGuard lock(mutex_);
  open(pending_.take_seen(seen));
}

void PinnedGuard::reused(const void* begin) {
  const auto* const windows = PinnedWindows::get_if_made();
  if (windows == nullptr) return;
  const auto block = windows->block_of(reinterpret_cast<std::uintptr_t>(begin));
  const LockGuard lock(mutex_);
  open(pending_.take_block(block));
}

// Opens the pages of copies that signal handlers do not know any more. A thread that has faulted in
// between has opened its page.
void PinnedGuard::open(PendingCopies::List gone) {
  std::ranges::sort(gone, {}, [](const auto& copy) { return copy->first_page; });
  for (auto copy = gone.begin(); copy != gone.end();) {
    const auto block = (*copy)->block;
    const auto begin = (*copy)->first_page;
    auto end = (*copy)->end_of_pages;
    while (++copy != gone.end() && (*copy)->first_page <= end &&
           block.contains((*copy)->first_page))
      end = std::max(end, (*copy)->end_of_pages);
    apply(block, begin, end);
  }
}

// Gives these pages the protection that the pending copies ask for.
void PinnedGuard::apply(PinnedWindows::Block block, std::uintptr_t begin, std::uintptr_t end) {
  ++changes_;
  const auto page_size = PinnedWindows::page_size();
  Copies here;
  const auto pending = pending_.of_block(block);
  for (const auto& copy : *pending) {
    if (copy->first_page < end && begin < copy->end_of_pages && !copy->is_reported())
      here.push_back(copy.get());
  }
  std::ranges::sort(here, {}, [](const PendingCopy* copy) { return copy->footprint.begin(); });
  const auto end_of_use = PinnedWindows::get()->end_of_use(block);
  const auto protect = [&](std::uintptr_t from, std::uintptr_t to, int protection) {
    if (protection == kOpen) {
      open_pages(block, from, to);
    } else {
      set_protection(from, to, protection);  // if refused, it is not guarded
    }
  };
  auto run = begin;  // of pages with the same protection
  int protection_of_run = kOpen;
  for (auto page = begin; page < end;) {
    Copies of_page;
    auto next = end;  // where other copies begin or end
    for (const auto* copy : here) {
      if (page < copy->first_page) {
        next = std::min(next, copy->first_page);
      } else if (page < copy->end_of_pages) {
        const auto last = copy->end_of_pages - page_size;
        const bool inside = page != copy->first_page && page < last;
        next = std::min(next, inside && copy->footprint.is_contiguous() ? last : page + page_size);
        of_page.push_back(copy);
      }
    }
    const auto used = std::min(page + page_size, end_of_use);
    int protection = kOpen;
    if (!of_page.empty() && cover(of_page, page, used, /*only_written=*/false))
      protection = cover(of_page, page, used, /*only_written=*/true) ? PROT_NONE : PROT_READ;
    if (protection != protection_of_run) {
      if (run < page) protect(run, page, protection_of_run);
      run = page;
      protection_of_run = protection;
    }
    page = next;
  }
  protect(run, end, protection_of_run);
}

FaultResult PinnedGuard::handle_fault(const void* address, FaultAccess access) noexcept {
  const auto* const windows = PinnedWindows::get_if_made();
  if (windows == nullptr) return FaultResult::kUnhandled;
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const auto block = windows->block_of(at);
  return block.contains(at) ? instance().handle_fault(block, at, access) : FaultResult::kUnhandled;
}

FaultResult PinnedGuard::handle_fault(PinnedWindows::Block block, std::uintptr_t address,
                                      FaultAccess did) noexcept {
  const auto pending = pending_.of_block(block);
  for (const auto& copy : *pending) {
    if (!copy->conflicts(address, did == FaultAccess::kWrite) || copy->is_reported() ||
        is_shut_down() || hosts_have_seen(copy->submission))
      continue;
    auto none = PendingCopy::Report::kNone;
    if (copy->report.compare_exchange_strong(none, PendingCopy::Report::kBegun))
      return report(block, *copy, address, did);
    // Another thread reports it; this one goes on when that has.
    while (!copy->is_reported()) sched_yield();
  }
  const auto page = PinnedWindows::page_of(address);
  if (!open_pages(block, page, end_of_page(address)) || is_spurious_fault(page))
    return FaultResult::kUnhandled;
  return FaultResult::kRetry;
}

bool PinnedGuard::is_spurious_fault(std::uintptr_t page) const noexcept {
  struct Faults {
    std::uintptr_t page = 0;
    std::uint64_t changes = 0;
    int count = 0;
  };
  thread_local constinit Faults last;
  const std::uint64_t changes = changes_;
  if (last.page != page || last.changes != changes) last = {.page = page, .changes = changes};
  return ++last.count > kMostFaultsInVain;
}

FaultResult PinnedGuard::report(PinnedWindows::Block block, const PendingCopy& copy,
                                std::uintptr_t address, FaultAccess did) noexcept {
  SignalText text;
  text.text("openreg: the host ").text(verb_of(did));
  text.text(" pinned memory before it waited for the copy that ");
  text.text(copy.written ? "writes it" : "reads it");
  text.text(" (byte ").number(address - block.begin).text(" of the block at 0x");
  text.number(block.begin, 16).text("; ").text(copy.description.c_str());
  text.text("); call ").text(kModule);
  text.text(".synchronize(), event.synchronize() or stream.synchronize() first");
  const Reaction reaction = reaction_;
  const Reporter reporter = reporter_;
  if (reporter == nullptr || !reporter(text.c_str(), reaction)) {
    text.write_to_stderr();
    if (reaction == Reaction::kRaise) {
      copy.report = PendingCopy::Report::kDone;  // for a program that survives it
      return FaultResult::kFatal;
    }
  }
  // The rest of the copy's memory would be the same error again.
  copy.report = PendingCopy::Report::kDone;
  open_pages(block, copy.first_page, copy.end_of_pages);
  return FaultResult::kRetry;
}

}  // namespace openreg::memory
