#include "train/saver.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "config/print.h"

namespace moesaic {
namespace {

// What a rank tells the others about its part of a phase.
constexpr char kWorking = 'w', kDone = 'd', kFailed = 'f';  // kFailed: followed by why

constexpr std::chrono::milliseconds kShortestWait{1}, kLongestWait{250};  // between two looks in finish()

}  // namespace

class Saver::Held {
 public:
  explicit Held(double& total) : total_(total) {}
  ~Held() { total_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  double& total_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

Saver::Saver(Session& session, std::string folder, int64_t keep_last, double timeout)
    : session_(session),
      folder_(std::move(folder)),
      keep_last_(keep_last),
      timeout_(timeout),
      snapshot_(session) {}

void Saver::enter(Phase phase, bool mine, std::function<std::string()> work) {
  phase_ = phase;
  told_ = std::string(1, kDone);
  if (!mine) return;
  told_ = std::string(1, kWorking);
  part_ = std::async(std::launch::async, std::move(work));
}

void Saver::end_part() {
  if (!part_.valid() || part_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return;
  try {
    info_ = part_.get();
    told_ = std::string(1, kDone);
  } catch (const std::exception& error) {
    told_ = kFailed + std::string(error.what());
  }
}

void Saver::start(const RunState& state) {
  MOESAIC_CHECK(!busy(), "a save is under way");
  held_ = 0;
  const Held held(held_);
  snapshot_.take();
  state_ = state;
  writer_.emplace(folder_, state.step);
  enter(Phase::begin, session_.rank().rank == 0, [this] {
    writer_->begin();
    return std::string();
  });
}

std::optional<Saver::Saved> Saver::advance() {
  std::optional<Saved> saved;
  {
    const Held held(held_);
    saved = look();
  }
  if (saved) saved->held = held_;
  return saved;
}

std::optional<Saver::Saved> Saver::look() {
  if (!busy()) return std::nullopt;
  end_part();
  Control& control = session_.rank().control;
  control.set_operation("save checkpoint");
  const std::vector<std::string> all = control.all_gather(told_);
  // A failure is told when nobody writes any more, so that whoever hears of it may remove or save anew.
  const auto is = [](char what) { return [what](const std::string& told) { return told[0] == what; }; };
  busy_.clear();
  for (size_t r = 0; r < all.size(); ++r)
    if (is(kWorking)(all[r])) busy_ += fmt::format("{}{}", busy_.empty() ? "" : ", ", r);
  if (!busy_.empty()) return std::nullopt;
  const auto failed = std::find_if(all.begin(), all.end(), is(kFailed));
  if (failed != all.end()) give_up(failed->substr(1));
  switch (phase_) {
    case Phase::begin:
      enter(Phase::write, true, [this] {
        return encode_shard_info(writer_->write_shard(session_.rank().rank, snapshot_.pieces()));
      });
      return std::nullopt;
    case Phase::write:
      enter_publish(control.all_gather(info_));
      return std::nullopt;
    default:
      phase_ = Phase::none;
      return Saved{state_.step, writer_->path(), 0};
  }
}

void Saver::enter_publish(std::vector<std::string> infos) {
  const nlohmann::json state{{"config", print_config(session_.config())},
                             {"step", state_.step},
                             {"num_updates", state_.num_updates},
                             {"rows_factor", state_.rows_factor},
                             {"seconds", state_.seconds},
                             {"data_position", state_.position}};
  enter(Phase::publish, session_.rank().rank == 0, [this, state, texts = std::move(infos)] {
    std::vector<ShardInfo> shards;
    for (const std::string& text : texts) shards.push_back(decode_shard_info(text, folder_));
    known_.insert_or_assign(writer_->path(), writer_->publish(shards, state));
    prune_checkpoints(folder_, keep_last_, known_);
    return std::string();
  });
}

void Saver::give_up(const std::string& why) {
  phase_ = Phase::none;
  if (session_.rank().rank == 0) {
    try {
      clean_checkpoints(folder_);  // a full disk gets its space back
    } catch (const IoError& error) {
      log_warning("{}", error.what());
    }
  }
  fail<IoError>("saving step {} failed: {}", state_.step, why);
}

std::optional<Saver::Saved> Saver::finish() {
  double standing = 0;  // seconds in this phase
  for (auto wait = kShortestWait; busy(); wait = std::min(2 * wait, kLongestWait)) {
    const double before = held_;
    const Phase phase = phase_;
    {
      const Held held(held_);
      if (part_.valid()) part_.wait_for(wait);
    }
    if (auto saved = advance()) return saved;
    standing = phase_ == phase ? standing + held_ - before : 0;
    require<IoError>(
        standing < timeout_,
        "saving step {} has stood still for {:.0f} s: rank {} is still at work in {}; if the disk "
        "is only slow, raise run.save_timeout",
        state_.step, standing, busy_, folder_);
  }
  return std::nullopt;
}

}  // namespace moesaic
