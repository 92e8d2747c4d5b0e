#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "device/plan.h"

namespace moesaic {

std::optional<std::pair<int32_t, int32_t>> find_unordered(const Plan& plan) {
  const auto& nodes = plan.program().nodes();
  const size_t count = nodes.size();
  const auto on = [&](size_t i, Stream s) {
    return std::find(nodes[i].streams.begin(), nodes[i].streams.end(), s) != nodes[i].streams.end();
  };
  // before[i][j]: node j is over when node i starts.
  std::vector<std::vector<bool>> before(count, std::vector<bool>(count, false));
  const auto follows = [&](size_t i, size_t j) {
    before[i][j] = true;
    for (size_t k = 0; k < count; ++k)
      if (before[j][k]) before[i][k] = true;
  };
  for (size_t i = 0; i < count; ++i) {
    const Stream home = nodes[i].streams.front();
    for (size_t j = i; j-- > 0;)
      if (on(j, home)) {
        follows(i, j);
        break;
      }
    for (const Wait& wait : plan.nodes()[i].waits) follows(i, static_cast<size_t>(wait.before));
  }
  const auto conflict = [&](const Access& a, const Access& b) {
    const TensorInfo &x = plan.program().info(a.handle), &y = plan.program().info(b.handle);
    const int64_t xo = plan.offset(a.handle), yo = plan.offset(b.handle);
    return (a.writes() || b.writes()) && x.slot.index == y.slot.index && x.bytes() > 0 && y.bytes() > 0 &&
           xo < yo + y.bytes() && yo < xo + x.bytes();
  };
  for (size_t i = 0; i < count; ++i)
    for (size_t j = 0; j < i; ++j) {
      if (before[i][j]) continue;
      for (Stream s : nodes[i].streams)
        if (on(j, s)) return std::pair{static_cast<int32_t>(j), static_cast<int32_t>(i)};
      for (const Access& a : nodes[i].accesses)
        for (const Access& b : nodes[j].accesses)
          if (conflict(a, b)) return std::pair{static_cast<int32_t>(j), static_cast<int32_t>(i)};
    }
  return std::nullopt;
}

std::string print_plan(const Plan& plan) {
  const Program& program = plan.program();
  std::string text = fmt::format("program {}: {} ops, workspace {}\n", program.name(), program.nodes().size(),
                                 format_bytes(plan.workspace_bytes()));
  std::string segment;
  for (size_t i = 0; i < program.nodes().size(); ++i) {
    const Node& node = program.nodes()[i];
    if (node.segment != segment) text += fmt::format("  -- {}\n", segment = node.segment);
    std::string streams, waits;
    for (Stream s : node.streams) streams += fmt::format("{}{}", streams.empty() ? "" : "+", name_of(s));
    for (const Wait& wait : plan.nodes()[i].waits) {
      const Node& other = program.nodes()[static_cast<size_t>(wait.before)];
      waits += fmt::format(
          "{}{}:{}{}", waits.empty() ? "  waits for " : ", ", wait.before, other.name,
          wait.reuse ? fmt::format(" (memory reuse, {:.3g} operations, {} of work)", other.cost.operations,
                                   format_bytes(static_cast<int64_t>(other.cost.bytes)))
                     : "");
    }
    std::string tensors;
    for (const Access& access : node.accesses) {
      const TensorInfo& info = program.info(access.handle);
      tensors += fmt::format(" {}{}{}",
                             access.mode == Mode::in    ? ""
                             : access.mode == Mode::out ? ">"
                                                        : "+",
                             info.name, info.shape.str());
    }
    text += fmt::format("  {:3} {:8} {:28} {:>10} read+written{}{}\n      {}\n", i, streams, node.name,
                        format_bytes(static_cast<int64_t>(node.cost.bytes)),
                        node.cost.sent > 0
                            ? fmt::format(", {} sent", format_bytes(static_cast<int64_t>(node.cost.sent)))
                            : "",
                        waits, tensors);
  }
  return text;
}

}  // namespace moesaic
