#pragma once

namespace openreg::executor {

/// The descriptors that the program gives to the process that it starts.
inline constexpr int kSupervisorSocket = 3;
inline constexpr int kExecutorSocket = 4;

/// What the supervisor reports: first the number of the executor's process, then how it ended (as
/// waitpid() says it).
struct SupervisorReport {
  int number;
  int supervisor;  ///< the number of its own process
};

/// The main function of the program that becomes an executor. See Note [An executor's processes] in
/// supervisor.cpp. `program` is the number of the process that has started this one. `serve` runs
/// in the executor and does not return.
[[noreturn]] void be_executor(int program, void (*serve)(int socket));

}  // namespace openreg::executor
