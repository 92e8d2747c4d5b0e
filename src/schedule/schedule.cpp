#include "schedule/schedule.h"

#include "base/error.h"

namespace moesaic {
namespace {

std::vector<Action> one_stage(int64_t num_chunks, int64_t num_micro_batches) {
  std::vector<Action> actions;
  for (int64_t micro_batch = 0; micro_batch < num_micro_batches; ++micro_batch) {
    for (int64_t chunk = 0; chunk < num_chunks; ++chunk) {
      actions.push_back({ActionKind::forward, chunk, micro_batch});
    }
    for (int64_t chunk = num_chunks - 1; chunk >= 0; --chunk) {
      actions.push_back({ActionKind::backward, chunk, micro_batch});
      if (micro_batch == num_micro_batches - 1) actions.push_back({ActionKind::reduce, chunk});
    }
  }
  actions.push_back({ActionKind::step});
  for (int64_t chunk = 0; chunk < num_chunks; ++chunk) actions.push_back({ActionKind::gather, chunk});
  return actions;
}

}  // namespace

Schedule make_schedule(ScheduleKind kind, int64_t pp, int64_t num_chunks, int64_t num_micro_batches) {
  require<ConfigError>(num_chunks >= 1 && num_micro_batches >= 1,
                       "a schedule needs at least one chunk and one micro-batch, found {} and {}", num_chunks,
                       num_micro_batches);
  require<ConfigError>(pp == 1, "layout.pp = {}: pipeline schedules are not built yet; use layout.pp = 1",
                       pp);
  Schedule schedule{num_chunks, num_micro_batches, {}};
  switch (kind) {
    case ScheduleKind::one_forward_one_backward:
      schedule.ranks.push_back(one_stage(num_chunks, num_micro_batches));
      break;
  }
  return schedule;
}

std::string_view name_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward:
      return "forward";
    case ActionKind::backward:
      return "backward";
    case ActionKind::backward_input:
      return "backward_input";
    case ActionKind::backward_weight:
      return "backward_weight";
    case ActionKind::send_activation:
      return "send_activation";
    case ActionKind::recv_activation:
      return "recv_activation";
    case ActionKind::send_gradient:
      return "send_gradient";
    case ActionKind::recv_gradient:
      return "recv_gradient";
    case ActionKind::reduce:
      return "reduce";
    case ActionKind::gather:
      return "gather";
    case ActionKind::step:
      return "step";
  }
  return "";
}

std::string describe(const Action& action) {
  switch (action.kind) {
    case ActionKind::step:
      return "step";
    case ActionKind::reduce:
    case ActionKind::gather:
      return fmt::format("{} chunk {}", name_of(action.kind), action.chunk);
    default:
      break;
  }
  std::string text =
      fmt::format("{} chunk {} micro-batch {}", name_of(action.kind), action.chunk, action.micro_batch);
  if (action.peer >= 0) text += fmt::format(" peer {}", action.peer);
  return text;
}

}  // namespace moesaic
