#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace openreg {

/// Identifies a submission: its stream, and its number among the submissions of that stream.
struct SubmissionId {
  std::uint32_t stream = 0;  ///< a number of HappensBefore's, from 1; 0: none
  std::uint64_t number = 0;  ///< from 1

  bool operator==(const SubmissionId&) const = default;
};

/// A set of submissions that holds, of each stream, the first ones up to some number: a vector
/// clock. A value type, cheap to copy.
class VectorClock {
 public:
  bool includes(SubmissionId submission) const noexcept {
    return number_of(submission.stream) >= submission.number;
  }
  /// The number of the stream's last submission that it includes; 0: none.
  std::uint64_t number_of(std::uint32_t stream) const noexcept;
  /// The newest submission of the stream that the clock was taken of.
  SubmissionId last() const noexcept { return last_; }

  /// Adds what `other` includes. False: nothing was new.
  bool join(const VectorClock& other);
  void set_last(SubmissionId submission) noexcept { last_ = submission; }
  /// Includes one more submission of the stream that the clock is of, and returns it.
  SubmissionId advance(std::uint32_t stream) noexcept { return last_ = {stream, last_.number + 1}; }

 private:
  using Numbers = std::vector<std::uint64_t>;  // by stream

  std::shared_ptr<const Numbers> numbers_;  // shared by clocks; null: none
  SubmissionId last_;                       // may be newer than what the numbers say
};

}  // namespace openreg
