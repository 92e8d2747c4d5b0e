#include "schedule/check.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.h"

namespace moesaic {
namespace {

bool is_send(ActionKind kind) {
  return kind == ActionKind::send_activation || kind == ActionKind::send_gradient;
}
bool is_recv(ActionKind kind) {
  return kind == ActionKind::recv_activation || kind == ActionKind::recv_gradient;
}
bool is_compute(ActionKind kind) {
  return kind <= ActionKind::backward_weight;
}

// The chunk at the other end: activations go from a chunk to the next one, gradients to the one before.
int64_t other_chunk(const Action& action) {
  const bool up = action.kind == ActionKind::send_activation || action.kind == ActionKind::recv_gradient;
  return action.chunk + (up ? 1 : -1);
}

class Checker {
 public:
  explicit Checker(const Schedule& schedule) : schedule_(schedule) {}

  ScheduleReport run() {
    report_.max_in_flight.resize(schedule_.ranks.size());
    if (!check_bounds() || !find_owners()) return std::move(report_);
    for (size_t rank = 0; rank < schedule_.ranks.size(); ++rank) walk_rank(static_cast<int64_t>(rank));
    check_messages();
    if (report_.problems.empty()) check_progress();
    return std::move(report_);
  }

 private:
  struct Work {  // what has happened so far to one (chunk, micro-batch)
    bool received_input = false;
    bool received_gradient = false;
    bool forward = false;
    bool input_half = false;
    bool weight_half = false;
  };

  template <class... Args>
  void problem(int64_t rank, const Action& action, fmt::format_string<Args...> format, Args&&... args) {
    report_.problems.push_back(fmt::format("rank {}, {}: {}", rank, describe(action),
                                           fmt::format(format, std::forward<Args>(args)...)));
  }

  bool check_bounds() {
    const auto num_ranks = static_cast<int64_t>(schedule_.ranks.size());
    for (int64_t rank = 0; rank < num_ranks; ++rank) {
      for (const Action& action : actions(rank)) {
        if (action.chunk < 0 || action.chunk >= schedule_.num_chunks) {
          problem(rank, action, "there are {} chunks", schedule_.num_chunks);
        } else if (action.micro_batch < 0 || action.micro_batch >= schedule_.num_micro_batches) {
          problem(rank, action, "there are {} micro-batches", schedule_.num_micro_batches);
        } else if (is_send(action.kind) || is_recv(action.kind)) {
          const int64_t other = other_chunk(action);
          if (other < 0 || other >= schedule_.num_chunks)
            problem(rank, action, "there is no chunk {}", other);
          if (action.peer < 0 || action.peer >= num_ranks || action.peer == rank) {
            problem(rank, action, "the peer must be another of {} ranks", num_ranks);
          }
        }
      }
    }
    return report_.problems.empty();
  }

  bool find_owners() {
    owners_.assign(static_cast<size_t>(schedule_.num_chunks), -1);
    for (size_t rank = 0; rank < schedule_.ranks.size(); ++rank) {
      for (const Action& action : schedule_.ranks[rank]) {
        if (!is_compute(action.kind)) continue;
        int64_t& owner = owners_[static_cast<size_t>(action.chunk)];
        if (owner < 0) owner = static_cast<int64_t>(rank);
        if (owner != static_cast<int64_t>(rank)) {
          problem(static_cast<int64_t>(rank), action, "the chunk already runs on rank {}", owner);
        }
      }
    }
    for (size_t chunk = 0; chunk < owners_.size(); ++chunk) {
      if (owners_[chunk] < 0) report_.problems.push_back(fmt::format("chunk {} runs on no rank", chunk));
    }
    return report_.problems.empty();
  }

  void walk_rank(int64_t rank) {
    std::vector<Work> work(static_cast<size_t>(schedule_.num_chunks * schedule_.num_micro_batches));
    std::vector<int64_t> num_reduced(owners_.size()), num_gathered(owners_.size());
    int64_t num_steps = 0;
    int64_t in_flight = 0;
    int64_t& max_in_flight = report_.max_in_flight[static_cast<size_t>(rank)];
    const auto at = [&](int64_t chunk, int64_t micro_batch) -> Work& {
      return work[static_cast<size_t>(chunk * schedule_.num_micro_batches + micro_batch)];
    };
    const auto is_mine = [&](int64_t chunk) {
      return chunk >= 0 && chunk < schedule_.num_chunks && owners_[static_cast<size_t>(chunk)] == rank;
    };
    const auto has_finished = [&](int64_t chunk) {
      for (int64_t i = 0; i < schedule_.num_micro_batches; ++i) {
        if (!at(chunk, i).weight_half) return false;
      }
      return true;
    };

    for (const Action& action : actions(rank)) {
      const auto [kind, chunk, micro_batch, peer] = action;
      Work& mine = at(chunk, micro_batch);
      if (kind != ActionKind::step && !is_mine(chunk)) {
        problem(rank, action, "the chunk is rank {}'s", owners_[static_cast<size_t>(chunk)]);
        continue;
      }
      switch (kind) {
        case ActionKind::forward:
          if (mine.forward) problem(rank, action, "it has run before");
          if (chunk > 0 && !(is_mine(chunk - 1) ? at(chunk - 1, micro_batch).forward : mine.received_input)) {
            problem(rank, action, "its input is not there yet");
          }
          mine.forward = true;
          max_in_flight = std::max(max_in_flight, ++in_flight);
          break;
        case ActionKind::backward:
        case ActionKind::backward_input:
          if (!mine.forward) problem(rank, action, "its forward has not run");
          if (mine.input_half) problem(rank, action, "it has run before");
          if (chunk + 1 < schedule_.num_chunks &&
              !(is_mine(chunk + 1) ? at(chunk + 1, micro_batch).input_half : mine.received_gradient)) {
            problem(rank, action, "the gradient of its output is not there yet");
          }
          mine.input_half = true;
          if (kind == ActionKind::backward_input) break;
          mine.weight_half = true;
          --in_flight;
          break;
        case ActionKind::backward_weight:
          if (!mine.input_half) problem(rank, action, "its input half has not run");
          if (mine.weight_half) problem(rank, action, "it has run before");
          mine.weight_half = true;
          --in_flight;
          break;
        case ActionKind::send_activation:
          if (!mine.forward) problem(rank, action, "its forward has not run");
          break;
        case ActionKind::send_gradient:
          if (!mine.input_half) problem(rank, action, "its backward has not run");
          break;
        case ActionKind::recv_activation:
          mine.received_input = true;
          break;
        case ActionKind::recv_gradient:
          mine.received_gradient = true;
          break;
        case ActionKind::reduce:
          if (!has_finished(chunk)) problem(rank, action, "not all of the chunk's backwards have run");
          ++num_reduced[static_cast<size_t>(chunk)];
          break;
        case ActionKind::step:
          ++num_steps;
          for (int64_t c = 0; c < schedule_.num_chunks; ++c) {
            if (is_mine(c) && num_reduced[static_cast<size_t>(c)] == 0) {
              problem(rank, action, "chunk {} is not reduced", c);
            }
          }
          break;
        case ActionKind::gather:
          if (num_steps == 0) problem(rank, action, "the step has not run");
          ++num_gathered[static_cast<size_t>(chunk)];
          break;
      }
      if ((is_send(kind) || is_recv(kind)) && owners_[static_cast<size_t>(other_chunk(action))] != peer) {
        problem(rank, action, "the other end is rank {}'s",
                owners_[static_cast<size_t>(other_chunk(action))]);
      }
    }

    if (num_steps != 1)
      report_.problems.push_back(fmt::format("rank {} steps {} times, not once", rank, num_steps));
    for (int64_t chunk = 0; chunk < schedule_.num_chunks; ++chunk) {
      if (!is_mine(chunk)) continue;
      if (!has_finished(chunk)) {
        report_.problems.push_back(
            fmt::format("rank {} leaves a micro-batch of chunk {} unfinished", rank, chunk));
      }
      const int64_t reduced = num_reduced[static_cast<size_t>(chunk)];
      const int64_t gathered = num_gathered[static_cast<size_t>(chunk)];
      if (reduced != 1 || gathered != 1) {
        report_.problems.push_back(
            fmt::format("rank {} reduces chunk {} {} times and gathers it {} times, not once", rank, chunk,
                        reduced, gathered));
      }
    }
  }

  // Between two ranks, what one sends is what the other receives, in the same order.
  void check_messages() {
    struct Line {
      std::vector<Action> sent;
      std::vector<Action> received;
    };
    std::map<std::tuple<int64_t, int64_t, bool>, Line> lines;  // from, to, are they gradients
    for (size_t i = 0; i < schedule_.ranks.size(); ++i) {
      const auto rank = static_cast<int64_t>(i);
      for (const Action& action : schedule_.ranks[i]) {
        const bool gradient =
            action.kind == ActionKind::send_gradient || action.kind == ActionKind::recv_gradient;
        if (is_send(action.kind)) lines[{rank, action.peer, gradient}].sent.push_back(action);
        if (is_recv(action.kind)) lines[{action.peer, rank, gradient}].received.push_back(action);
      }
    }
    for (const auto& [ends, line] : lines) {
      const auto [from, to, gradient] = ends;
      const size_t count = std::max(line.sent.size(), line.received.size());
      for (size_t i = 0; i < count; ++i) {
        if (i >= line.received.size()) {
          problem(from, line.sent[i], "rank {} has no receive for it", to);
        } else if (i >= line.sent.size()) {
          problem(to, line.received[i], "rank {} has no send for it", from);
        } else if (other_chunk(line.sent[i]) != line.received[i].chunk ||
                   line.sent[i].micro_batch != line.received[i].micro_batch) {
          problem(from, line.sent[i], "rank {} receives {} in its place", to, describe(line.received[i]));
          break;
        }
      }
    }
  }

  // Walks all lists together, each as far as its receives allow. Lines are in order, so counting messages is
  // enough.
  void check_progress() {
    std::map<std::tuple<int64_t, int64_t, bool>, int64_t> waiting;  // messages sent and not yet received
    std::vector<size_t> done(schedule_.ranks.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t i = 0; i < done.size(); ++i) {
        const auto rank = static_cast<int64_t>(i);
        for (; done[i] < schedule_.ranks[i].size(); ++done[i], moved = true) {
          const Action& action = schedule_.ranks[i][done[i]];
          if (is_send(action.kind)) {
            ++waiting[{rank, action.peer, action.kind == ActionKind::send_gradient}];
          } else if (is_recv(action.kind)) {
            int64_t& here = waiting[{action.peer, rank, action.kind == ActionKind::recv_gradient}];
            if (here == 0) break;
            --here;
          }
        }
      }
    }
    for (size_t i = 0; i < done.size(); ++i) {
      if (done[i] == schedule_.ranks[i].size()) continue;
      problem(static_cast<int64_t>(i), schedule_.ranks[i][done[i]],
              "waits for ever: its sender waits in turn");
    }
  }

  const std::vector<Action>& actions(int64_t rank) const {
    return schedule_.ranks[static_cast<size_t>(rank)];
  }

  const Schedule& schedule_;
  ScheduleReport report_;
  std::vector<int64_t> owners_;  // rank by chunk
};

}  // namespace

ScheduleReport check_schedule(const Schedule& schedule) {
  return Checker(schedule).run();
}

}  // namespace moesaic
