#include "address_space/device_work.h"

#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include "address_space/address_space.h"
#include "base/device_name.h"
#include "base/error.h"

namespace openreg {

// Note [Illegal accesses]
// A command may use device memory that is not mapped: a graph is replayed after a tensor that it
// reads was freed and its memory was given back, a program computes an address, a kernel has a
// wrong index. On a GPU that is an error of the device. Here the processor raises SIGSEGV, in the
// middle of a kernel, which nothing can unwind. So the signal handler opens the piece of the
// aperture (MappedMemory::open): the instruction reads zeros, or writes to memory that is
// not read. It notes the access in the slot of the command's thread, and the command fails when its
// kernel returns. Then the piece is closed again.
//
// A kernel may compute with several threads, and those that help have no slot. The access then
// belongs to a command of that device; if several run, each of them fails, because none can be
// excluded.
namespace {

using Slot = DeviceWorkScope::Slot;

constinit std::atomic<Slot*> g_slots{nullptr};
constinit thread_local Slot* t_slot = nullptr;
constinit thread_local bool t_gone = false;

struct SlotOwner {
  SlotOwner() = default;
  ~SlotOwner() {
    t_gone = true;
    if (t_slot != nullptr) t_slot->owned = false;
    t_slot = nullptr;
  }
  SlotOwner(const SlotOwner&) = delete;
  SlotOwner& operator=(const SlotOwner&) = delete;
  bool registered = false;
};

Slot* reuse_slot() noexcept {
  for (Slot* slot = g_slots.load(std::memory_order_acquire); slot; slot = slot->next) {
    bool owned = false;
    if (slot->owned.compare_exchange_strong(owned, true)) return slot;
  }
  return nullptr;
}

Slot* make_slot() noexcept {
  auto* const made = new (std::nothrow) Slot;
  if (made == nullptr) return nullptr;
  made->next = g_slots.load(std::memory_order_relaxed);
  while (!g_slots.compare_exchange_weak(made->next, made, std::memory_order_release)) {
  }
  return made;
}

Slot* own_slot() noexcept {
  if (t_slot != nullptr || t_gone) return t_slot;
  thread_local SlotOwner owner;
  owner.registered = true;
  Slot* const reused = reuse_slot();
  return t_slot = reused != nullptr ? reused : make_slot();
}

std::string describe_illegal(const Slot& slot) {
  const auto work = slot.work();
  const auto* const address = reinterpret_cast<const void*>(slot.illegal.load());
  char text[32];
  std::snprintf(text, sizeof text, "%p", address);
  std::string sentence = "an illegal memory access was encountered";
  if (work.node != DeviceWork::kNone)
    sentence += " in node " + std::to_string(work.node) + " of a graph";
  sentence += std::string(": the memory at ") + text + " of " + device_name(work.device) +
              " is not allocated";
  if (slot.is_suspicion) sentence += " (or another command that ran at the same time accessed it)";
  return sentence + "; a tensor was freed too early, or an index or an address is wrong";
}

// So that the next access is noticed, too.
void forget(Slot& slot) noexcept {
  slot.illegal = 0;
  slot.is_suspicion = false;
  if (auto* const space = AddressSpace::get_if_reserved()) space->close_opened();
}

}  // namespace

DeviceWork DeviceWorkScope::Slot::work() const noexcept {
  return {.name = name.load(std::memory_order_relaxed),
          .device = device.load(std::memory_order_relaxed),
          .stream = stream.load(std::memory_order_relaxed),
          .node = node.load(std::memory_order_relaxed)};
}

void DeviceWorkScope::Slot::set(const DeviceWork& work) noexcept {
  device.store(work.device, std::memory_order_relaxed);
  stream.store(work.stream, std::memory_order_relaxed);
  node.store(work.node, std::memory_order_relaxed);
  name.store(work.name, std::memory_order_release);
}

DeviceWorkScope::DeviceWorkScope(const DeviceWork& work) noexcept : slot_(own_slot()) {
  if (slot_ == nullptr) return;
  outer_ = slot_->work();
  outer_illegal_ = slot_->illegal.load(std::memory_order_relaxed);
  if (outer_illegal_ != 0) slot_->illegal.store(0, std::memory_order_relaxed);
  slot_->set(work);
}

DeviceWorkScope::~DeviceWorkScope() {
  if (slot_ == nullptr) return;
  if (is_illegal()) [[unlikely]] {
    try {
      std::fprintf(stderr, "openreg: %s on %s: %s\n", slot_->work().name,
                   device_name(slot_->work().device).c_str(), describe_illegal(*slot_).c_str());
    } catch (const std::exception&) {  // no memory for the sentence
    }
    forget(*slot_);
  }
  slot_->set(outer_);
  if (outer_illegal_ != 0) slot_->illegal.store(outer_illegal_, std::memory_order_relaxed);
}

void DeviceWorkScope::raise() {
  const std::string sentence = describe_illegal(*slot_);
  forget(*slot_);
  throw Error("openreg: " + sentence);
}

DeviceWorkScope::Slot* slot_of_this_thread() noexcept {
  return t_slot != nullptr && t_slot->name.load(std::memory_order_relaxed) != nullptr ? t_slot
                                                                                      : nullptr;
}

DeviceWorkScope::Slot* first_slot() noexcept { return g_slots.load(std::memory_order_acquire); }

}  // namespace openreg
