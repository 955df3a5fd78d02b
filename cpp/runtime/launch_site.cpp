#include "runtime/launch_site.h"

#include "runtime/settings.h"
#include "runtime/turn.h"

namespace openreg {

namespace {

constinit LaunchSites g_sites;

}  // namespace

constinit std::atomic<LaunchSite (*)() noexcept> detail::g_launch_site_here{nullptr};

// Launches from within a command have no line in the program.
LaunchSite detail::find_launch_site(LaunchSite (*here)() noexcept) noexcept {
  return in_command() ? 0 : here();
}

void install_launch_sites(const LaunchSites& sites) noexcept { g_sites = sites; }

void ask_for_launch_sites() {
  if (settings().stacks) detail::g_launch_site_here.store(g_sites.here, std::memory_order_relaxed);
}

std::string describe(LaunchSite site) {
  return site != 0 && g_sites.describe ? g_sites.describe(site) : std::string();
}

std::string launched_by(LaunchSite site) {
  const std::string words = describe(site);
  return words.empty() ? words : ", launched by " + words;
}

}  // namespace openreg
