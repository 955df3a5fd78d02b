#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace openreg::distributed {

/// The progress of a process group in this process. Nothing is sent until an operation fails: then
/// the ranks report to each other through the group's store, so that the error can say where they
/// are. Thread safe.
class Progress {
 public:
  /// An operation: its kernel's name, which is static, and its number in the group.
  struct Step {
    const char* name;
    std::uint64_t number;
    bool operator==(const Step&) const = default;
  };
  /// A group, as this process sees it.
  struct Member {
    c10::intrusive_ptr<c10d::Store> store;
    std::string group;
    int rank;
    int size;
    std::vector<std::uint64_t> global_ranks;  // may be empty

    /// "openreg: occl::send (number 2 of process group "some", rank 0 of 2)": begins an error.
    std::string sentence(const Step& step) const;
  };
  /// How long a failure waits for the reports of other ranks.
  static constexpr std::chrono::milliseconds kReportTimeout{1000};
  /// How much longer it waits for the store.
  static constexpr std::chrono::milliseconds kStoreTimeout{3000};

  explicit Progress(std::shared_ptr<const Member> member);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void queued(const Step& step);
  void begun(const Step& step);
  /// Notes that an operation has succeeded.
  void ended(const Step& step);
  /// Notes that an operation has failed, or will not begin.
  void dropped(const Step& step);
  /// Whether nothing is queued and nothing is under way.
  bool idle() const;

  /// Reports to the other ranks where this process is, in all of its groups, and returns what they
  /// have reported: "rank 1: in occl::broadcast (number 2); ranks 2-4: no report". Blocks for
  /// kReportTimeout if some ranks report nothing, and for kStoreTimeout more if the store does not
  /// answer. Empty in a group of one, or if no thread is available.
  std::string exchange();

 private:
  struct Entry {
    Step step;
    bool begun = false;
  };
  struct Report;

  void forget(const Step& step);
  /// "in occl::send (number 2)", or nothing.
  std::string under_way(bool with_group) const;
  std::string describe(const std::string& elsewhere) const;
  /// What the process must report to its groups when an operation of this group fails.
  std::vector<Report> new_reports();

  const std::shared_ptr<const Member> member_;
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;  // neither ended nor dropped, in the order of their launches
  Step last_ended_{};
  bool has_reported_ = false;  // guarded by the registry's mutex
};

}  // namespace openreg::distributed
