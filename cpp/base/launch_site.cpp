#include "base/launch_site.h"

#include "runtime/callbacks.h"
#include "runtime/run_slice.h"
#include "base/settings.h"

namespace openreg {

constinit std::atomic<LaunchSite (*)() noexcept> detail::g_launch_site_here{nullptr};

// Launches from within a command have no line in the program.
LaunchSite detail::find_launch_site(LaunchSite (*here)() noexcept) noexcept {
  return in_command() ? 0 : here();
}

void ask_for_launch_sites() {
  if (settings().stacks) find_launch_sites(true);
}

void find_launch_sites(bool wanted) {
  wanted |= settings().stacks;
  detail::g_launch_site_here.store(wanted ? current_callbacks().launch_site : nullptr,
                                   std::memory_order_relaxed);
}

std::string describe(LaunchSite site) {
  const auto describe_it = current_callbacks().describe_launch_site;
  return site != 0 && describe_it ? describe_it(site) : std::string();
}

std::string launched_by(LaunchSite site) {
  const std::string words = describe(site);
  return words.empty() ? words : ", launched by " + words;
}

}  // namespace openreg
