#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace openreg {

/// A line of the program that launches commands; 0: unknown.
using LaunchSite = std::uint32_t;

/// Functions that the layers above provide.
struct LaunchSiteFinder {
  /// The line of the program that the calling thread is at; 0 inside a command. Called at each
  /// launch while lines are looked for, with no lock held.
  LaunchSite (*here)() noexcept = nullptr;
  /// The innermost line of the program itself that the calling thread is in; 0: it is in none, as
  /// autograd's threads. Called with no lock held.
  LaunchSite (*in_program)() noexcept = nullptr;
  /// A line as text: "train.py:12 in step". Called from any thread, also with the captures' lock
  /// held: it must take no lock under which the runtime is called.
  std::string (*describe)(LaunchSite site) = nullptr;
};
/// Meant for library initialisation and tests: the object lives as long as the process.
void install_launch_site_finder(const LaunchSiteFinder& finder) noexcept;

/// Called at first use: with TORCH_OPENREG_STACKS=1, launch_site() finds lines from now on. Throws
/// Error if the settings are malformed.
void apply_launch_site_setting();
/// Makes launch_site() find lines from now on if `wanted`, or if the setting requires it.
/// Throws Error if the settings are malformed.
void enable_launch_sites(bool wanted);

namespace detail {
extern constinit std::atomic<LaunchSite (*)() noexcept> g_launch_site_here;
}

/// The line that launches now; 0 unless lines are looked for.
inline LaunchSite launch_site() noexcept {
  const auto here = detail::g_launch_site_here.load(std::memory_order_relaxed);
  return here ? here() : 0;
}
/// The innermost line of the program that the calling thread is in, whatever the setting; 0: it is
/// unknown.
LaunchSite line_in_program() noexcept;
/// A launching line as text; empty if it is unknown.
std::string describe(LaunchSite site);
/// A launching line for an error: ", launched by train.py:12 in step"; empty if it is unknown.
std::string launched_by(LaunchSite site);

}  // namespace openreg
