#pragma once
// A training run in small, of four ranks, one of which fails as a test says: agree to start, then agree, step and save.
#include <cstring>
#include <sstream>
#include <string>

#include "support/faulty_rank.h"
#include "support/layout_runner.h"
#include "support/process_ranks.h"
#include "train/saver.h"

namespace moesaic::test {

inline constexpr double kHangLimit = 1;  // seconds that a rank may stand still
inline constexpr double kSecondsToEnd =
    kHangLimit + 4;  // for the whole job, on a machine that is busy with other tests
inline constexpr int64_t kFaultyRank = 1, kFaultyStep = 2, kHangSteps = 5;

enum class Place { start, dispatch, combine, reduction, step, save };
struct PlaceInfo {
  const char* name;
  const char* operation;
  int64_t step;
};
inline constexpr PlaceInfo kPlaces[] = {{"start", "agree to start", -1},
                                        {"dispatch", "all_to_all tokens", kFaultyStep},
                                        {"combine", "all_to_all expert output", kFaultyStep},
                                        {"reduction", "reduce_scatter head", kFaultyStep},
                                        {"step", "all_gather head", kFaultyStep},
                                        {"save", "save checkpoint", kFaultyStep}};
inline const PlaceInfo& place_of(Place place) {
  return kPlaces[static_cast<size_t>(place)];
}

inline Config hang_config() {
  Config c = small_config();
  c.layout.dp = c.layout.n = 2;
  c.model.num_layers = 1;
  c.layout.dispatch = Dispatch::a2a;
  c.train.micro_batch = 4;
  c.run.comm_timeout = kHangLimit;
  return c;
}

/// What a child is told: fault, place, and the folder of checkpoints.
inline std::string hang_text(Fault fault, Place place, const std::string& folder) {
  return fmt::format("{} {} {}", static_cast<int>(fault), static_cast<int>(place), folder);
}

inline BatchSource random_source(const Config& config) {
  return [&config](std::span<const int64_t> positions) {
    return random_batch(positions, config.train.seq_len, config.model.vocab);
  };
}

inline void save_now(Session& session, const std::string& folder, int64_t step) {
  Saver saver(session, folder, 2, 60);
  saver.start({.step = step});
  saver.finish();
}

/// What the trainer does with its ranks.
inline void train_with_fault(const std::string& text) {
  std::istringstream words(text);
  int fault = 0;
  size_t place = 0;
  std::string folder;
  words >> fault >> place >> folder;
  const Injection injection{static_cast<Fault>(fault), kPlaces[place].operation, kPlaces[place].step};
  const Config config = hang_config();
  run_ranks(config.run, 4, [&](Rank& real) {
    FaultyRank faulty(real, real.rank == kFaultyRank ? injection : Injection{});
    Rank& rank = faulty.rank;
    rank.control.set_time_limit(kHangLimit);
    rank.control.set_operation("agree to start");
    rank.control.broadcast("now");
    Session session(config, rank);
    session.initialize();
    for (int64_t step = 0; step < kHangSteps; ++step) {
      rank.control.set_step(step);
      rank.control.set_operation("agree on the next step");
      rank.control.barrier();
      session.step(random_source(config), step * config.train.global_batch, 0.1);
      if (step % 2 == 0) save_now(session, folder, step + 1);
    }
  });
}

/// When the fault happened, by the steady clock; 0: it did not.
inline double fault_time(const std::string& output) {
  const size_t at = output.find(kFaultAt);
  return at == std::string::npos ? 0 : std::stod(output.substr(at + std::strlen(kFaultAt)));
}

}  // namespace moesaic::test
