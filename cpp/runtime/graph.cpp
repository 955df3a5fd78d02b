#include "runtime/graph.h"

#include <ostream>
#include <string>

#include "base/device_name.h"

namespace openreg {

namespace {

std::string dot_string(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + '"';
}

}  // namespace

void write_dot(const Graph& graph, std::ostream& out) {
  out << "digraph openreg {\n  node [shape=box];\n";
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const auto& node = graph.nodes[i];
    const auto& lane = graph.lanes[node.lane];
    std::string label = std::to_string(i) + ": " + node.kernel->name() + "\n" +
                        device_name(lane.device) + ", lane " + std::to_string(node.lane);
    if (const auto site = describe(node.site); !site.empty()) label += "\n" + site;
    std::string escaped;  // a line break is two characters in DOT
    for (const char c : dot_string(label)) c == '\n' ? escaped += "\\n" : escaped += c;
    out << "  n" << i << " [label=" << escaped << "];\n";
    for (const auto before : node.after) out << "  n" << before << " -> n" << i << ";\n";
  }
  out << "}\n";
}

}  // namespace openreg
