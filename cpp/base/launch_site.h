#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace openreg {

/// A line of the program that launches commands; 0: unknown.
using LaunchSite = std::uint32_t;

/// Called at first use: with TORCH_OPENREG_STACKS=1, launch_site() finds lines from now on, through
/// the callbacks. Throws Error if the settings are malformed.
void ask_for_launch_sites();
/// Makes launch_site() find lines from now on if `wanted`, or if the setting requires it.
/// Throws Error if the settings are malformed.
void find_launch_sites(bool wanted);

namespace detail {
extern constinit std::atomic<LaunchSite (*)() noexcept> g_launch_site_here;
LaunchSite find_launch_site(LaunchSite (*here)() noexcept) noexcept;
}  // namespace detail

/// The line that launches now; 0 unless lines are looked for.
inline LaunchSite launch_site() noexcept {
  const auto here = detail::g_launch_site_here.load(std::memory_order_relaxed);
  return here ? detail::find_launch_site(here) : 0;
}
/// The line as text; empty if it is unknown.
std::string describe(LaunchSite site);
/// For errors: ", launched by train.py:12 in step"; empty if it is unknown.
std::string launched_by(LaunchSite site);

}  // namespace openreg
