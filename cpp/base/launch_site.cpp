#include "base/launch_site.h"

#include "base/settings.h"

namespace openreg {

namespace {
constexpr LaunchSiteFinder kNone;
constinit std::atomic<const LaunchSiteFinder*> g_finder{&kNone};
}  // namespace

constinit std::atomic<LaunchSite (*)() noexcept> detail::g_launch_site_here{nullptr};

void install_launch_site_finder(const LaunchSiteFinder& finder) noexcept {
  g_finder.store(&finder, std::memory_order_release);
}

void apply_launch_site_setting() {
  if (settings().stacks) enable_launch_sites(true);
}

void enable_launch_sites(bool wanted) {
  wanted |= settings().stacks;
  detail::g_launch_site_here.store(
      wanted ? g_finder.load(std::memory_order_acquire)->here : nullptr, std::memory_order_relaxed);
}

LaunchSite line_in_program() noexcept {
  const auto in_program = g_finder.load(std::memory_order_acquire)->in_program;
  return in_program ? in_program() : 0;
}

std::string describe(LaunchSite site) {
  const auto describe_it = g_finder.load(std::memory_order_acquire)->describe;
  return site != 0 && describe_it ? describe_it(site) : std::string();
}

std::string launched_by(LaunchSite site) {
  const std::string words = describe(site);
  return words.empty() ? words : ", launched by " + words;
}

}  // namespace openreg
