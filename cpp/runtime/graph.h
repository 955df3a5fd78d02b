#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <vector>

#include "runtime/command.h"
#include "runtime/launch_site.h"
#include "runtime/stream.h"

namespace openreg {

/// Commands, and which of them run after which: what streams were told while they were captured
/// (capture.h). A value; how it runs is in graph_exec.h.
struct Graph {
  struct Node {
    const Kernel* kernel = nullptr;
    std::vector<std::byte> arguments;
    Work work{};
    LaunchSite site = 0;
    std::uint32_t lane = 0;
    /// Numbers of nodes, all less than its own, in order and none twice. The node before it on its
    /// own lane is among them.
    std::vector<std::uint32_t> after{};
  };
  /// A stream that was captured. The first one is the stream that the capture began on.
  struct Lane {
    int device = 0;
    Priority priority = Priority::kNormal;
  };

  std::vector<Node> nodes;
  std::vector<Lane> lanes;
  /// What is to run before the graph is done; what these run after is not listed.
  std::vector<std::uint32_t> ends;
};

/// The graph in DOT, the language of Graphviz: a box for each node, with its kernel's name, lane
/// and launching line, and an edge for each dependency.
void write_dot(const Graph& graph, std::ostream& out);

}  // namespace openreg
