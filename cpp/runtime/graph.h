#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <vector>

#include "base/launch_site.h"
#include "runtime/command.h"
#include "runtime/stream.h"

namespace openreg {

/// Commands and their dependencies: what was enqueued on streams while they were captured
/// (capture.h). A value type; graph_exec.h runs it.
struct Graph {
  struct Node {
    const Kernel* kernel = nullptr;
    std::vector<std::byte> arguments;
    Cost cost{};
    LaunchSite site = 0;
    std::uint32_t lane = 0;
    /// Numbers of the nodes that it runs after: all less than its own, in ascending order, none
    /// twice. The previous node of its own lane is among them, or runs before one of them.
    std::vector<std::uint32_t> after{};
  };
  /// A stream that was captured. The first one is the stream that the capture began on.
  struct Lane {
    int device = 0;
    Priority priority = Priority::kNormal;
  };

  std::vector<Node> nodes;
  std::vector<Lane> lanes;
  /// Nodes that must run before the graph has completed; those that they run after need not be
  /// listed.
  std::vector<std::uint32_t> ends;
};

/// The graph in DOT, the language of Graphviz: a box for each node, with its kernel's name, lane
/// and launching line, and an edge for each dependency.
void write_dot(const Graph& graph, std::ostream& out);

}  // namespace openreg
