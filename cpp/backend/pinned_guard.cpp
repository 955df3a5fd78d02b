#include "backend/pinned_guard.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "runtime/address_space/signal_text.h"
#include "runtime/callbacks.h"
#include "runtime/process.h"

namespace openreg::backend {

// Note [Guarded pinned memory]
// A page has the strongest protection that a pending access of its bytes asks for: PROT_NONE if a
// command writes them, PROT_READ if one reads them. The device uses its own window
// (pinned_windows.h) and is not concerned.
//
// *No false alarms.* Pages are coarser than accesses. So the signal handler looks whether the byte
// is one of a pending access that the instruction conflicts with. If not, it opens the page, lets
// the processor execute this one instruction, and closes the page again. That takes microseconds
// for each access to such a page. So after some ten thousand of them, and on processors other than
// x86-64, the page stays open until the next protect() that concerns it. What is accessed meanwhile
// is missed, and so are bytes behind the first one that an instruction accesses. A host that has
// seen the completion may also be faster than the thread that opens the pages for it, so the
// handler asks HappensBefore.
//
// *Signal handlers* read what is published, which does not change. The fault is not asynchronous:
// the thread is at an instruction that accesses pinned memory, and no code that holds a lock of the
// allocator, of this library or of Python does that. So the handler may take such a lock, which
// another thread will release.
namespace {

std::uintptr_t page_of(std::uintptr_t address) noexcept {
  return address & ~(PinnedWindows::page_size() - 1);
}

std::uintptr_t end_of_page(std::uintptr_t last) noexcept {
  return page_of(last) + PinnedWindows::page_size();
}

bool set_protection(std::uintptr_t begin, std::uintptr_t end, int protection) noexcept {
  return ::mprotect(reinterpret_cast<void*>(begin), end - begin, protection) == 0;
}

constexpr int kOpen = PROT_READ | PROT_WRITE;
constexpr int kMostSteps = 1 << 14;

// If the kernel has no room for one more mapping, all of the block needs fewer.
void open_pages(PinnedWindows::Block block, std::uintptr_t begin, std::uintptr_t end) noexcept {
  if (!set_protection(begin, end, kOpen)) set_protection(block.begin, block.end, kOpen);
}

bool hosts_have_seen(Moment moment) {
  auto* const order = HappensBefore::get();
  return order == nullptr || order->seen_by_hosts().includes(moment);
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

struct PinnedGuard::Access {
  enum class Report : std::uint8_t { kNone, kBegun, kDone };

  memory::Footprint footprint;
  bool written;
  Moment moment;
  std::string description;
  mutable std::atomic<Report> report{Report::kNone};

  std::uintptr_t first_page() const noexcept { return page_of(footprint.begin()); }
  std::uintptr_t end_of_pages() const noexcept { return end_of_page(footprint.end() - 1); }
  /// What the page at `page` needs. Async-signal-safe.
  int protection_of(std::uintptr_t page) const noexcept {
    if (report == Report::kDone || !footprint.first_in(page, page + PinnedWindows::page_size()))
      return kOpen;
    return written ? PROT_NONE : PROT_READ;
  }

  /// Async-signal-safe.
  bool conflicts(std::uintptr_t address, FaultAccess did) const noexcept {
    return (written || did == FaultAccess::kWrite) && footprint.first_in(address, address + 1);
  }
  /// Whether hosts that wait for this also wait for `other`, of which this says all.
  bool replaces(const Access& other) const noexcept {
    return moment.stream == other.moment.stream && moment.number >= other.moment.number &&
           written >= other.written && footprint.covers(other.footprint);
  }
};

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
  install_callbacks({.hosts_have_seen_more = [] {
    if (auto* const guard = get()) guard->release_seen();
  }});
  judge_faults_by(&PinnedGuard::judge, &PinnedGuard::close_again);
  instance_.store(&guard, std::memory_order_release);
}

void PinnedGuard::switch_off() {
  if (instance_.exchange(nullptr) == nullptr) return;
  instance().forget([](const Access&) { return true; });
}

void PinnedGuard::raise_by(Raise raise) noexcept { instance().raise_ = raise; }

void PinnedGuard::protect(const memory::Footprint& footprint, bool written, Moment moment,
                          std::string description) {
  const auto* const windows = PinnedWindows::get_if_made();
  if (windows == nullptr || footprint.empty()) return;
  const auto block = windows->block_of(footprint.begin());
  if (footprint.end() > block.end) return;
  judge_faults_by(
      &PinnedGuard::judge,
      &PinnedGuard::close_again);  // before handlers that were installed in the meantime
  auto access = std::make_shared<Access>();
  access->footprint = footprint;
  access->written = written;
  access->moment = moment;
  access->description = std::move(description);

  const LockGuard lock(mutex_);
  std::erase_if(pending_, [&](const auto& each) { return access->replaces(*each); });
  pending_.push_back(access);
  steps_ = 0;
  published_.replace(pending_);
  apply(access->first_page(), access->end_of_pages());
}

void PinnedGuard::withdraw(Moment moment) {
  forget([&](const Access& access) { return access.moment == moment; });
}

void PinnedGuard::release_seen() {
  auto* const order = HappensBefore::get();
  if (order == nullptr) return;
  const auto seen = order->seen_by_hosts();
  forget([&](const Access& access) { return seen.includes(access.moment); });
}

void PinnedGuard::reused(const void* begin) {
  const auto* const windows = PinnedWindows::get_if_made();
  if (windows == nullptr) return;
  const auto block = windows->block_of(reinterpret_cast<std::uintptr_t>(begin));
  forget([&](const Access& access) { return block.contains(access.footprint.begin()); });
}

// First the accesses become unknown to handlers, then the pages are opened: whoever faults in
// between opens the page.
template <class Predicate>
void PinnedGuard::forget(Predicate predicate) {
  const LockGuard lock(mutex_);
  if (pending_.empty()) return;
  Accesses gone;
  std::erase_if(pending_, [&](const auto& access) {
    if (!predicate(*access)) return false;
    gone.push_back(access);
    return true;
  });
  if (gone.empty()) return;
  published_.replace(pending_);
  std::ranges::sort(gone, {}, [](const auto& access) { return access->first_page(); });
  for (auto access = gone.begin(); access != gone.end();) {
    const auto begin = (*access)->first_page();
    auto end = (*access)->end_of_pages();
    while (++access != gone.end() && (*access)->first_page() <= end)
      end = std::max(end, (*access)->end_of_pages());
    apply(begin, end);
  }
}

// Gives these pages the protection that the pending accesses ask for.
void PinnedGuard::apply(std::uintptr_t begin, std::uintptr_t end) {
  if (dying_) return;
  std::vector<const Access*> here;
  for (const auto& access : pending_) {
    if (access->first_page() < end && begin < access->end_of_pages() &&
        access->report != Access::Report::kDone)
      here.push_back(access.get());
  }
  auto run = begin;  // of pages with the same protection
  int protection_of_run = kOpen;
  for (auto page = begin; page < end;) {
    int protection = kOpen;
    auto next = end;  // where that may change
    for (const auto* access : here) {
      if (page < access->first_page()) {
        next = std::min(next, access->first_page());
      } else if (page < access->end_of_pages()) {
        const bool dense = access->footprint.is_contiguous();
        next = std::min(next, dense ? access->end_of_pages() : page + PinnedWindows::page_size());
        protection &= access->protection_of(page);
      }
    }
    if (protection != protection_of_run) {
      if (run < page) set_protection(run, page, protection_of_run);
      run = page;
      protection_of_run = protection;
    }
    page = next;
  }
  set_protection(run, end, protection_of_run);
}

FaultVerdict PinnedGuard::judge(const void* address, FaultAccess access) noexcept {
  const auto* const windows = PinnedWindows::get_if_made();
  if (windows == nullptr) return FaultVerdict::kUnknown;
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const auto block = windows->block_of(at);
  return block.contains(at) ? instance().judge(block, at, access) : FaultVerdict::kUnknown;
}

FaultVerdict PinnedGuard::judge(PinnedWindows::Block block, std::uintptr_t address,
                                FaultAccess did) noexcept {
  if (dying_) return FaultVerdict::kGoOn;  // which faults again, until the process has ended
  const auto pending = published_.read();
  for (const auto& access : *pending) {
    if (!access->conflicts(address, did) || access->report == Access::Report::kDone ||
        is_shut_down() || hosts_have_seen(access->moment))
      continue;
    auto none = Access::Report::kNone;
    if (!access->report.compare_exchange_strong(none, Access::Report::kBegun))
      return FaultVerdict::kGoOn;  // another thread reports it; this one faults until that has
    return report(block, *access, address, did);
  }
  const auto page = page_of(address);
  open_pages(block, page, end_of_page(address));
  const bool closes = std::ranges::any_of(
      *pending, [&](const auto& access) { return access->protection_of(page) != kOpen; });
  return closes && ++steps_ < kMostSteps ? FaultVerdict::kGoOnce : FaultVerdict::kGoOn;
}

void PinnedGuard::close_again(const void* address) noexcept {
  const auto page = page_of(reinterpret_cast<std::uintptr_t>(address));
  const auto* const windows = PinnedWindows::get_if_made();
  if (windows == nullptr || !windows->block_of(page).contains(page)) return;
  const auto pending = instance().published_.read();
  int protection = kOpen;
  for (const auto& access : *pending) protection &= access->protection_of(page);
  set_protection(page, end_of_page(page), protection);
}

FaultVerdict PinnedGuard::report(PinnedWindows::Block block, const Access& access,
                                 std::uintptr_t address, FaultAccess did) noexcept {
  SignalText text;
  text.text("openreg: the host ").text(verb_of(did));
  text.text(" pinned memory before it waited for the copy that ");
  text.text(access.written ? "writes it" : "reads it");
  text.text(" (byte ").number(address - block.begin).text(" of the block at 0x");
  text.number(block.begin, 16).text("; ").text(access.description.c_str());
  text.text(
      "); call torch.openreg.synchronize(), event.synchronize() or stream.synchronize() first");
  const bool warns = reaction_ == Reaction::kWarn;
  const Raise raise = raise_;
  if (warns || raise == nullptr || !raise(text.c_str())) {
    text.write_to_stderr();
    if (!warns) {
      dying_ = true;
      return FaultVerdict::kFatal;
    }
  }
  // The rest of the copy's memory would be the same error again.
  access.report = Access::Report::kDone;
  open_pages(block, access.first_page(), access.end_of_pages());
  return FaultVerdict::kGoOn;
}

}  // namespace openreg::backend
