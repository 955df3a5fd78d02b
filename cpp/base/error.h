#pragma once

#include <exception>
#include <stdexcept>
#include <string>

namespace openreg {

/// The base class of the runtime's errors. The message starts with "openreg: ", or with the
/// device that it is about ("openreg:0 ..."), and says what the user can do. The layers above
/// convert it to their own exception types in one place (backend/exception.h).
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An injected fault (runtime/fault_table.h), where a command or a call fails as a real one would.
class InjectedError : public Error {
 public:
  using Error::Error;
};

/// The message of any exception: that of set_exception_message(), else what(), if it has one.
std::string describe(const std::exception_ptr& error);
/// Called for the message of an exception, by any thread. Meant for library initialisation.
void set_exception_message(std::string (*message)(const std::exception_ptr& error)) noexcept;
/// Like describe(), but without a leading "openreg: ", for a sentence that begins so already.
std::string describe_cause(const std::exception_ptr& error);

}  // namespace openreg
