#include "distributed/progress.h"

#include <algorithm>
#include <future>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "distributed/blocking_calls.h"

namespace openreg::distributed {

struct Progress::Report {
  c10::intrusive_ptr<c10d::Store> store;
  int rank;
  std::string text;
};

namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;
using Step = Progress::Step;

/// The groups of the process.
struct Registry {
  static Registry& get() {
    static Registry& registry = *new Registry;  // groups may outlive static objects
    return registry;
  }
  std::mutex mutex;  // before those of groups
  std::vector<Progress*> groups;
};

std::string key_of(int rank) { return "occl/report/" + std::to_string(rank); }

std::string text_of(const Step& step, const std::string& group = "") {
  return std::string(step.name) + " (number " + std::to_string(step.number) +
         (group.empty() ? "" : " of process group \"" + group + "\"") + ")";
}

/// "rank 1", "ranks 1-3, 7": the group's ranks, or the global ones if the group does not contain
/// all ranks.
std::string text_of(const std::vector<int>& ranks, const std::vector<std::uint64_t>& global_ranks) {
  std::vector<std::uint64_t> numbers(ranks.begin(), ranks.end());
  const bool part = !global_ranks.empty() && global_ranks.back() + 1 != global_ranks.size();
  if (part)
    std::ranges::transform(ranks, numbers.begin(), [&](int i) { return global_ranks.at(i); });
  std::string text = part ? "global rank" : "rank";
  text += numbers.size() == 1 ? " " : "s ";
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto first = i;
    while (i + 1 < numbers.size() && numbers[i + 1] == numbers[i] + 1) ++i;
    if (first > 0) text += ", ";
    text += std::to_string(numbers[first]);
    if (i > first) text.append("-").append(std::to_string(numbers[i]));
  }
  return text;
}

/// What the other ranks report until the time is up. Throws what the store throws.
std::string read_reports(c10d::Store& store, const Progress::Member& member) {
  std::vector<std::string> keys;
  keys.reserve(static_cast<std::size_t>(member.size));
  for (int rank = 0; rank < member.size; ++rank) keys.push_back(key_of(rank));
  const auto end = std::chrono::steady_clock::now() + Progress::kReportTimeout;
  while (!store.check(keys) && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  std::vector<std::pair<std::string, std::vector<int>>> found;
  for (int rank = 0; rank < member.size; ++rank) {
    if (rank == member.rank) continue;
    const std::string text = store.check({keys[rank]}) ? store.get_to_str(keys[rank])
                                                       : "no report: slow, blocked or exited";
    auto same = std::ranges::find(found, text, [](const auto& each) { return each.first; });
    if (same == found.end()) same = found.insert(same, {text, {}});
    same->second.push_back(rank);
  }
  std::string all;
  for (const auto& [text, ranks] : found)
    all += (all.empty() ? "" : "; ") + text_of(ranks, member.global_ranks) + ": " + text;
  return all;
}

/// A separate connection, because the program may hold its own in a call that blocks.
StorePtr own(const StorePtr& shared) {
  auto store = shared->clone();
  store->setTimeout(Progress::kStoreTimeout);
  return store;
}

}  // namespace

std::string Progress::Member::sentence(const Step& step) const {
  return "openreg: " + std::string(step.name) + " (number " + std::to_string(step.number) +
         " of process group \"" + group + "\", rank " + std::to_string(rank) + " of " +
         std::to_string(size) + ")";
}

Progress::Progress(std::shared_ptr<const Member> member) : member_(std::move(member)) {
  auto& registry = Registry::get();
  const std::lock_guard lock(registry.mutex);
  registry.groups.push_back(this);
}

Progress::~Progress() {
  auto& registry = Registry::get();
  const std::lock_guard lock(registry.mutex);
  std::erase(registry.groups, this);
}

void Progress::queued(const Step& step) {
  const std::lock_guard lock(mutex_);
  entries_.push_back({step});
}

void Progress::begun(const Step& step) {
  const std::lock_guard lock(mutex_);
  for (auto& entry : entries_) entry.begun |= entry.step == step;
}

void Progress::ended(const Step& step) {
  const std::lock_guard lock(mutex_);
  forget(step);
  last_ended_ = step;
}

void Progress::dropped(const Step& step) {
  const std::lock_guard lock(mutex_);
  forget(step);
}

void Progress::forget(const Step& step) {
  const auto found = std::ranges::find(entries_, step, &Entry::step);
  if (found != entries_.end()) entries_.erase(found);
}

bool Progress::idle() const {
  const std::lock_guard lock(mutex_);
  return entries_.empty();
}

std::string Progress::under_way(bool with_group) const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (const auto& entry : entries_) {
    if (!entry.begun) continue;
    text +=
        (text.empty() ? "in " : " and ") + text_of(entry.step, with_group ? member_->group : "");
  }
  return text;
}

std::string Progress::describe(const std::string& elsewhere) const {
  if (auto here = under_way(false); !here.empty()) return here;
  const std::lock_guard lock(mutex_);
  std::string text = "before its first operation";
  if (!entries_.empty()) {
    text = "before " + text_of(entries_.front().step);
  } else if (last_ended_.name) {
    text = "after " + text_of(last_ended_);
  }
  return text + (elsewhere.empty() ? "" : ", " + elsewhere);
}

// A group's report is replaced only if the group itself fails. A later report would mislead:
// operations that were under way in other groups have ended, and those that waited for them are
// skipped.
std::vector<Progress::Report> Progress::new_reports() {
  auto& registry = Registry::get();
  const std::lock_guard lock(registry.mutex);
  std::vector<Report> reports;
  for (auto* const group : registry.groups) {
    if (group->has_reported_ && group != this) continue;
    std::string elsewhere;
    for (const auto* const other : registry.groups) {
      if (other == group) continue;
      const auto there = other->under_way(true);
      if (!there.empty()) elsewhere += (elsewhere.empty() ? "" : " and ") + there;
    }
    reports.push_back({group->member_->store, group->member_->rank, group->describe(elsewhere)});
    group->has_reported_ = true;
  }
  return reports;
}

// On a thread that may outlast this call: a store whose machine is out of reach answers after
// minutes.
std::string Progress::exchange() {
  if (member_->size == 1) return "";
  const auto answer = std::make_shared<std::promise<std::string>>();
  auto future = answer->get_future();
  try {
    run_on_separate_thread([answer, reports = new_reports(), member = member_] {
      try {
        for (const auto& report : reports) own(report.store)->set(key_of(report.rank), report.text);
        answer->set_value(read_reports(*own(member->store), *member));
      } catch (const std::exception&) {
        answer->set_value("no reports: the connection to the store failed");
      }
    });
  } catch (const std::system_error&) {
    return "";  // no thread available
  }
  if (future.wait_for(kReportTimeout + kStoreTimeout) != std::future_status::ready)
    return "no reports: the store does not respond";
  return future.get();
}

}  // namespace openreg::distributed
